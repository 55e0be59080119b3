#!/bin/bash
# unpacked.sh SOURCE_DIR BUILD_DIR: the Debian package that cpack makes of BUILD_DIR depends on what its files need.
# Unpacked, its program and its plugins run, and so do programs that are compiled against it. debian.sh installs it.
set -euo pipefail
export LC_ALL=C
source=$1 build=$2 work=$2/debian
model=$source/tests/vectors/models/tiny_gated_deltanet
fail() { echo "the Debian package $1"; exit 1; }
rm -rf "$work"
mkdir -p "$work"
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work" >"$work/log" 2>&1 || { tail -20 "$work/log" && fail "cannot be made"; }
package=$(echo "$work"/deltaic_*.deb)
dpkg -x "$package" "$work/root"
usr=$work/root/usr

[[ $(ls "$work/root") == usr ]] || fail "has files outside of /usr"
for file in bin/deltaic include/deltaic.h share/doc/deltaic/copyright share/man/man1/deltaic.1 \
  share/bash-completion/completions/deltaic; do
  [[ -s $usr/$file ]] || fail "has no $file"
done

# The packages of all libraries that programs, libraries and plugins need.
mapfile -t files < <(find "$usr" -name '*.so*' -type f -o -path '*/bin/*' -type f)
needed=$(readelf -d "${files[@]}" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u)
read -ra depends <<<"$(dpkg-deb -f "$package" Depends | sed 's/([^)]*)//g; s/[,|]/ /g')"
[[ $needed == *libc.so* && $needed == *libjansson* ]] || fail "is said to need nothing but $needed"
for library in $needed; do
  if compgen -G "$usr/lib*/$library" >/dev/null || compgen -G "$usr/lib/*/$library" >/dev/null; then continue; fi
  owners=$(dpkg -S "*/$library" | cut -d: -f1)
  for name in "${depends[@]}"; do
    if grep "^$name" <<<"$owners" >/dev/null; then continue 2; fi # libopenblas0 brings libopenblas0-pthread
  done
  fail "needs $library and does not depend on its package"
done
if readelf -d "${files[@]}" | grep -E '(RPATH|RUNPATH)' | grep -v '\[\$ORIGIN'; then fail "looks for libraries elsewhere"; fi

export XDG_CACHE_HOME=$work/cache
"$usr/bin/deltaic" --version
"$usr/bin/deltaic" generate -m "$model" -d cpu -q -n 5 --prompt a >"$work/text"
"$usr/bin/deltaic" prune "$model" "$work/half" --cut 0.5 --method l1 >"$work/pruned"
[[ -s $work/text && -s $work/half/model.safetensors ]] || fail "has a program that writes nothing"

PKG_CONFIG_PATH=$(dirname "$(find "$usr" -name deltaic.pc)")
export PKG_CONFIG_PATH LD_LIBRARY_PATH=$PKG_CONFIG_PATH/..
cd "$source/tests/embed"
cc -std=c11 app.c runtime.c host.c -o "$work/app" $(pkg-config --cflags --libs deltaic)
cc -std=c11 app_prune.c -o "$work/app_prune" $(pkg-config --cflags --libs deltaic_prune deltaic)
"$work/app" "$work/half" | grep ': token '
"$work/app_prune" "$model" | grep -x '8 heads'
echo "$(stat -c %s "$package") bytes; $(dpkg-deb -f "$package" Installed-Size) KiB installed; depends on ${depends[*]}"
