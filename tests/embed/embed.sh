#!/bin/bash
# Builds and runs somebody else's programs (tests/embed) with the library: C11 and C++17; static and shared; by
# add_subdirectory, FetchContent, find_package and pkg-config.
# embed.sh SOURCE_DIR BUILD_DIR: BUILD_DIR is a build with the static library; its compiled shaders are used again, so the
# library is compiled once more, without optimization, for all ways that bring its sources.
set -euo pipefail
source=$1 build=$2 work=$2/embed
model=$source/tests/vectors/models/tiny_gated_deltanet
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
unset DESTDIR PKG_CONFIG_PATH
rm -rf "$work"/{static,shared} "$work"/*/CMakeCache.txt
mkdir -p "$work"

# configure NAME OPTION...: somebody else's project, in $work/NAME.
configure() {
  local name=$1
  shift
  cmake -G "$(cached CMAKE_GENERATOR)" -S "$source/tests/embed" -B "$work/$name" -DCMAKE_BUILD_TYPE=Debug -DDELTAIC="$source" \
    -DDELTAIC_SPIRV="$build/spv" -DDELTAIC_VULKAN_HEADERS="$(cached DELTAIC_VULKAN_HEADERS)" \
    -DDELTAIC_VOLK="$(cached DELTAIC_VOLK)" "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}
# make_and_run WHAT NAME: builds it; its programs give the same token.
expected=
make_and_run() {
  local program
  cmake --build "$work/$2" -j 2 >"$work/log" 2>&1 || { tail -40 "$work/log"; exit 1; }
  for program in app app_cpp; do
    said=$("$work/$2/$program" "$model")
    [[ $said == *": token "* && $said == "${expected:=$said}" ]] || { echo "$1: $program said $said"; exit 1; }
  done
  if [[ -x $work/$2/app_prune ]]; then "$work/$2/app_prune" "$model" | grep -x '8 heads' >/dev/null; fi
  echo "$1: $said"
}

configure sources -DBY=add_subdirectory
make_and_run "add_subdirectory, static" sources
flags=$(grep -E '"command".* -o CMakeFiles/(app|app_cpp|runtime|host)\.dir/' "$work/sources/compile_commands.json")
if [[ $(wc -l <<<"$flags") != 4 || $flags =~ \ (-W|-O|-f|-DDELTAIC|-DVK) ]]; then
  printf 'flags of the library reach another target:\n%s\n' "$flags"
  exit 1
fi
configure sources -DBY=FetchContent
make_and_run "FetchContent, static" sources
# As where there is no ld -r and no objcopy. app_prune uses no name that clashes.
configure sources -DBY=FetchContent -DDELTAIC_LOCALIZE=OFF -DDELTAIC_PRUNER=ON -DPRUNE=ON
cmake --build "$work/sources" --target app_prune -j 2 >"$work/log" 2>&1 || { tail -40 "$work/log"; exit 1; }
"$work/sources/app_prune" "$model" | grep -x '8 heads' >/dev/null
configure sources -DBY=FetchContent -DBUILD_SHARED_LIBS=ON -DDELTAIC_INSTALL=ON
make_and_run "FetchContent, shared" sources

cmake --install "$build" --prefix "$work/static" >/dev/null
cmake --install "$work/sources" --prefix "$work/shared" >/dev/null
for kind in static shared; do
  configure "find_$kind" -DBY=find_package -DPRUNE=ON -DCMAKE_PREFIX_PATH="$work/$kind"
  make_and_run "find_package, $kind" "find_$kind"
  # By hand, with pkg-config.
  mkdir -p "$work/config_$kind"
  cd "$source/tests/embed"
  PKG_CONFIG_PATH=$(dirname "$(find "$work/$kind" -name deltaic.pc)")
  export PKG_CONFIG_PATH
  read -ra flags <<<"$(pkg-config --cflags --libs deltaic) -Wl,-rpath,$(pkg-config --variable=libdir deltaic)"
  read -ra prune_flags <<<"$(pkg-config --cflags --libs deltaic_prune)"
  cc=$(cached CMAKE_C_COMPILER)
  "$cc" -std=c11 app.c runtime.c host.c -o "$work/config_$kind/app" "${flags[@]}"
  "$cc" -std=c11 -c runtime.c -o "$work/config_$kind/runtime.o"
  c++ -std=c++17 app.cpp "$work/config_$kind/runtime.o" -o "$work/config_$kind/app_cpp" "${flags[@]}"
  "$cc" -std=c11 app_prune.c -o "$work/config_$kind/app_prune" "${prune_flags[@]}" "${flags[@]}"
  for program in app app_cpp; do
    said=$("$work/config_$kind/$program" "$model")
    [[ $said == "$expected" ]] || { echo "pkg-config, $kind: $program said $said"; exit 1; }
  done
  "$work/config_$kind/app_prune" "$model" | grep -x '8 heads' >/dev/null
  echo "pkg-config, $kind: $said"
done

# Another minor version is not found.
sed 's/find_package(deltaic 0.2/find_package(deltaic 0.1/' "$source/tests/embed/CMakeLists.txt" >"$work/old.txt"
mkdir -p "$work/old" && cp "$source"/tests/embed/*.c* "$work/old" && mv "$work/old.txt" "$work/old/CMakeLists.txt"
if cmake -G "$(cached CMAKE_GENERATOR)" -S "$work/old" -B "$work/old/build" -DBY=find_package -DCMAKE_PREFIX_PATH="$work/static" >"$work/log" 2>&1; then
  echo "a library of another version was found"
  exit 1
fi
grep -q 'compatible with requested version "0.1"' "$work/log"
