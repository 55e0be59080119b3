#!/bin/bash
# source.sh SOURCE_DIR BUILD_DIR: the source package holds what BUILD_DIR compiled from the shaders; building from it needs no
# shader compiler, and refuses these where a shader has changed. A compiler that is too old is told in a warning.
set -euo pipefail
source=$1 build=$2 work=$2/packages
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
say_and_fail() { echo "$1"; tail -20 "$work/log"; exit 1; }
headers=(-DDELTAIC_VULKAN_HEADERS="$(cached DELTAIC_VULKAN_HEADERS)" -DDELTAIC_VOLK="$(cached DELTAIC_VOLK)")
configure() { cmake -G "$(cached CMAKE_GENERATOR)" -DCMAKE_BUILD_TYPE=Debug "${headers[@]}" "$@" >"$work/log" 2>&1; }
told() { tr -s ' \n' ' ' <"$work/log" | grep -c "$1" >/dev/null; } # CMake wraps lines
warning='no kernels for matrix units'
rm -rf "$work"
mkdir -p "$work"

cpack --config "$build/CPackSourceConfig.cmake" -G TGZ -B "$work" >"$work/log" 2>&1 || say_and_fail "cpack fails"
tar -xzf "$work"/deltaic-*.tar.gz -C "$work" --exclude '*/tests/vectors/*' --exclude '*/models/*' # which no build reads
cd "$work"/deltaic-*/
for file in README.md CMakeLists.txt host/session/api.c shaders/token/embed.comp spirv/add.spv.h; do
  [[ -s $file ]] || say_and_fail "the source package has no $file"
done
[[ ! -e build && ! -e .git ]] || say_and_fail "the source package holds what is no source"

configure -S . -B build || say_and_fail "the source package cannot be configured"
! grep -q '^DELTAIC_GLSLANG' build/CMakeCache.txt || say_and_fail "the source package looks for a shader compiler"
if [[ $(wc -c <spirv/matmul_matrix_x32_f16.spv.h) -gt 1000 ]] && told "$warning"; then
  say_and_fail "a warning without a reason"
fi
cmake --build build --target deltaic_host_vulkan -j 2 >"$work/log" 2>&1 || say_and_fail "the source package does not build"
[[ ! -e build/spv/add.spv.h ]] || say_and_fail "shaders were compiled again"
! configure -S . -B build -DDELTAIC_SPIRV=/nowhere || say_and_fail "shaders that are not there are taken"

echo '// changed' >>shaders/token/embed.comp
! configure -S . -B build -DDELTAIC_SPIRV="$PWD/spirv" || say_and_fail "shaders of other sources are taken"
told 'was not compiled from the shaders' || say_and_fail "another failure"
configure -S . -B old -DDELTAIC_SPIRV= -DDELTAIC_GLSLANG="$(command -v false)" || say_and_fail "an old compiler is refused"
told "$warning" || say_and_fail "an old compiler is not told"
told '16,100' || say_and_fail "the warning does not tell what it costs"
echo "source package: $(stat -c %s "$work"/deltaic-*.tar.gz) bytes"
