#!/bin/bash
# Installs the library into a folder of the build's, compiles the C program of README.md against it with pkg-config and
# runs it: readme_snippet.sh CC SOURCE_DIR BUILD_DIR [FLAGS OF CC]
set -euo pipefail
cc=$1 source=$2 build=$3 installed=$3/installed
shift 3
rm -rf "$installed"
cmake --install "$build" --prefix "$installed" >/dev/null
PKG_CONFIG_PATH=$(dirname "$(find "$installed" -name deltaic.pc)")
export PKG_CONFIG_PATH
awk '/^```c$/ {on = 1; next} /^```$/ {on = 0} on' "$source/README.md" >"$build/readme.c"
grep -q deltaic_session_next "$build/readme.c" || { echo "README.md has no program"; exit 1; }
read -ra flags <<<"$(pkg-config --cflags --libs deltaic)"
"$cc" -std=c11 -Wall -Wextra -Werror "$@" "$build/readme.c" -o "$build/readme" "${flags[@]}"
[[ -s $installed/share/man/man1/deltaic.1 && -s $installed/share/bash-completion/completions/deltaic ]]
cd "$source"
text=$("$build/readme")
echo "$text"
((${#text} > 20))
# With a SentencePiece tokenizer, whose words have their spaces only inside a text.
mkdir -p "$installed/sp/models/novelist"
ln -s "$source"/models/novelist/{config.json,model.safetensors} "$installed/sp/models/novelist"
ln -s "$source/tests/vectors/tokenizer/sp.json" "$installed/sp/models/novelist/tokenizer.json"
cd "$installed/sp"
[[ $("$build/readme") == "It was"* ]]
[[ $("$installed/bin/deltaic" --version) == *"$(pkg-config --modversion deltaic)"* ]]
