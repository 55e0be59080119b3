#!/bin/bash
# Compiles the C program of README.md against the built library and runs it: readme_snippet.sh CC SOURCE_DIR BUILD_DIR LIBS...
set -euo pipefail
cc=$1 source=$2 build=$3
shift 3
awk '/^```c$/ {on = 1; next} /^```$/ {on = 0} on' "$source/README.md" >"$build/readme.c"
grep -q deltaic_session_next "$build/readme.c" || { echo "README.md has no program"; exit 1; }
"$cc" -std=c11 -Wall -Wextra -Werror -I"$source/include" "$build/readme.c" -o "$build/readme" "$@"
cd "$source"
text=$("$build/readme")
echo "$text"
((${#text} > 20))
