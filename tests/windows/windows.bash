# What `./bootstrap windows` and the tests of --all do, sourced by bootstrap: builds the program with mingw-w64 and runs it
# under Wine. Everything stays in build/windows.
windows=$PWD/build/windows
windows_packages=(gcc-mingw-w64-x86-64-posix wine xvfb xauth)
windows_full_packages=(gfortran-mingw-w64-x86-64-posix zip)
windows_cmake=(-DCMAKE_TOOLCHAIN_FILE="$PWD/tests/windows/mingw.cmake" -DDELTAIC_WINDOWS_PREFIX="$windows/prefix"
  -DCMAKE_BUILD_TYPE=Release)
export WINEPREFIX=$windows/wine WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" # no offers to install .NET and HTML

# windows_library NAME [CMAKE OPTIONS]: builds Debian's source of a library, static, into build/windows/prefix.
windows_library() {
  local name=$1 folder=$windows/sources/$1 stamp=$windows/prefix/$1.complete
  shift
  if [[ -e $stamp ]]; then return; fi
  rm -rf "$folder" && mkdir -p "$folder" || return
  (cd "$folder" && private_apt "$windows/apt" "$windows/apt" --download-only source "$name" &&
    dpkg-source --no-check -x ./*.dsc source) || return
  cmake -S "$folder/source" -B "$folder/build" "${windows_cmake[@]}" -DCMAKE_INSTALL_PREFIX="$windows/prefix" \
    -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF "$@" && cmake --build "$folder/build" -j "$jobs" --target install || return
  mkdir -p "$windows/prefix/licenses" && cp "$folder/source/debian/copyright" "$windows/prefix/licenses/$name" || return
  rm -rf "$folder" && touch "$stamp"
}

# windows_libraries full|short
windows_libraries() {
  local real=(-DBUILD_COMPLEX=OFF -DBUILD_COMPLEX16=OFF -DLAPACKE_BUILD_COMPLEX=OFF -DLAPACKE_BUILD_COMPLEX16=OFF)
  mkdir -p "$windows/apt/lists/partial" && : >"$windows/apt/status" || return
  if [[ ! -e $windows/prefix/pcre2.complete || ($1 == full && ! -e $windows/prefix/cmocka.complete) ]]; then
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(mirrors | head -1) bookworm main" \
      >"$windows/apt/sources.list"
    private_apt "$windows/apt" "$windows/apt" update || return
  fi
  windows_library jansson -DJANSSON_BUILD_DOCS=OFF -DJANSSON_WITHOUT_TESTS=ON -DJANSSON_EXAMPLES=OFF || return
  windows_library utf8proc || return
  windows_library pcre2 -DPCRE2_BUILD_TESTS=OFF -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_SUPPORT_JIT=ON || return
  if [[ $1 != full ]]; then return; fi
  # Of LAPACKE the pruner calls functions in double precision only.
  windows_library lapack -DCBLAS=ON -DLAPACKE=ON -DLAPACKE_BUILD_SINGLE=OFF -DTEST_FORTRAN_COMPILER=OFF "${real[@]}" ||
    return
  cat >"$windows/prefix/lib/pkgconfig/openblas.pc" <<END
Name: openblas
Description: the BLAS of netlib in its place
Version: 3
Libs: -L$windows/prefix/lib -llapacke -llapack -lcblas -lblas -lgfortran -lquadmath
Cflags: -I$windows/prefix/include
END
  windows_library cmocka -DWITH_EXAMPLES=OFF -DWITH_STATIC_LIB=ON || return
  rm -f "$windows/prefix/lib/libcmocka.dll.a" && cp "$windows/prefix/lib/libcmocka-static.a" "$windows/prefix/lib/libcmocka.a"
}

# windows_build full|short SPIRV: SPIRV is the folder of a build's compiled shaders.
windows_build() {
  local options=(-DBUILD_SHARED_LIBS=ON -DDELTAIC_WERROR=ON -DDELTAIC_SPIRV="$2" "${shader_tools[@]}") headers=$windows/headers
  if [[ $1 == full ]]; then options+=(-DDELTAIC_TESTS=ON -DDELTAIC_PRUNER=ON); else options+=(-DDELTAIC_TESTS=OFF -DDELTAIC_PRUNER=OFF); fi
  # Of this system's headers only these, which are the same everywhere.
  rm -rf "$headers" && mkdir -p "$headers" && ln -s /usr/include/stb "$headers/stb" || return
  options+=(-DDELTAIC_STB="$headers")
  if ((${#shader_tools[@]} == 0)); then
    ln -s /usr/include/{vulkan,vk_video,volk.h,volk.c} "$headers/" || return
    options+=(-DDELTAIC_VULKAN_HEADERS="$headers" -DDELTAIC_VOLK="$headers")
  fi
  build "$windows/build" deltaic_program "${windows_cmake[@]}" "${options[@]}"
}

# windows_screen COMMAND...: with an empty screen, for Wine's Vulkan, which has no validation layer. Mesa's settings are
# those of tests/with-new-vulkan. A fresh Debian has no locale, and Wine would then take arguments for ASCII.
windows_screen() {
  LC_ALL=C.UTF-8 GALLIVM_PERF=nopt LP_NATIVE_VECTOR_WIDTH=128 DELTAIC_TEST_NO_LAYER=1 xvfb-run -a "$@"
}

# windows_run PROGRAM ARGS: under Wine.
windows_run() { windows_screen wine "$@"; }

# windows_compare PROGRAM DEVICE: the greedy text of models/novelist here and there, with names and texts beyond ASCII.
windows_compare() {
  local model="$windows/Modell ä" words=(-n 40 --greedy --quiet --prompt "Größe: “ß” ")
  rm -rf "$model" && cp -r models/novelist "$model" || return
  "$1" generate --model "$model" --device cpu "${words[@]}" >"$windows/here.txt" || return
  windows_run "$windows/build/deltaic.exe" generate --model "$model" --device "$2" "${words[@]}" >"$windows/there.txt" || return
  cmp "$windows/here.txt" "$windows/there.txt" && [[ -s $windows/there.txt ]]
}

# windows_caches PROGRAM: the same on Vulkan, whose pipelines come into %LOCALAPPDATA%.
windows_caches() {
  rm -rf "$WINEPREFIX"/drive_c/users/*/AppData/Local/deltaic
  windows_compare "$1" 1 && compgen -G "$WINEPREFIX/drive_c/users/*/AppData/Local/deltaic/*.pipelines"
}

# windows_greedy PROGRAM EXE DEVICE: both choose the reference's greedy tokens for every checkpoint.
windows_greedy() {
  windows_screen tests/windows/greedy.bash "$3" "$1" >"$windows/here.txt" &&
    windows_screen tests/windows/greedy.bash "$3" wine "$2" >"$windows/there.txt" || {
    cat "$windows/here.txt" "$windows/there.txt"
    return 1
  }
  cmp "$windows/here.txt" "$windows/there.txt" && tail -1 "$windows/there.txt"
}

# windows_try TEXT COMMAND...: a test.
windows_try() {
  local text=$1
  shift
  if "$@" >"$windows/test.log" 2>&1; then
    passed=$((passed + 1))
    echo "windows: passed: $text"
  else
    failed=$((failed + 1))
    echo "windows: failed: $text" && tail -20 "$windows/test.log"
  fi
}

# windows_exports LIBRARY: the DLL exports what tests/exports/LIBRARY.txt has, which is what the ELF library exports.
windows_exports() {
  local table='/Ordinal.Name Pointer/ {on = 1; next} NF == 0 {on = 0} on {print $NF}'
  x86_64-w64-mingw32-objdump -p "$windows/build/lib$1.dll" | awk "$table" | LC_ALL=C sort |
    LC_ALL=C diff - <(LC_ALL=C sort "tests/exports/$1.txt")
}

# windows_stops EVENT CODE: Ctrl-C, or the closed console, ends the program in good order: what it has written can be
# continued.
windows_stops() {
  local model=(-m models/novelist -d cpu -q) state=build/windows/state
  rm -f "$state"
  x86_64-w64-mingw32-gcc-posix -Wall -Wextra -Werror tests/windows/send_event.c -o "$windows/send_event.exe" -static &&
    windows_run "$windows/send_event.exe" "$1" "$2" 'build\windows\build\deltaic.exe generate '"${model[*]} --prompt a \
--ignore-eos -n 10000000 --state-out $state" &&
    windows_run "$windows/build/deltaic.exe" generate "${model[@]}" --state-in "$state" -n 3
}

# The plugin, LAPACK, and a folder that is replaced.
windows_prune() {
  local out=$windows/pruned
  local prune=("$windows/build/deltaic.exe" prune models/novelist "$out" --text README.md --device cpu)
  rm -rf "$out"
  windows_run "${prune[@]}" --cut 0.25 && windows_run "${prune[@]}" --cut 0.5 --refit --force &&
    windows_run "$windows/build/deltaic.exe" info "$out"
}

# windows_embed FOLDER: a program that embeds the library which is installed in FOLDER.
windows_embed() {
  x86_64-w64-mingw32-gcc-posix tests/embed/{app,host,runtime}.c -I"$1/include" -L"$1/lib" -ldeltaic -o "$windows/app.exe" &&
    WINEPATH="Z:$1/bin" windows_run "$windows/app.exe" models/novelist
}

# windows_short PROGRAM SPIRV: libraries, program and DLL without LAPACK; that they compute what PROGRAM computes.
windows_short() {
  mkdir -p "$windows"
  if ! (install_packages "${windows_packages[@]}"); then
    say "skipping Windows"
    skipped=yes
    return
  fi
  if ! windows_libraries short >"$windows/libraries.log" 2>&1; then
    say "skipping Windows: its libraries cannot be had: $(tail -1 "$windows/libraries.log")"
    skipped=yes
    return
  fi
  if ! windows_build short "$2"; then
    failed=$((failed + 1))
    return
  fi
  windows_try "the DLL's exports" windows_exports deltaic
  windows_try "greedy text on the CPU" windows_compare "$1" cpu
  windows_try "greedy text and cached pipelines on Wine's Vulkan" windows_caches "$1"
  windows_try "Ctrl-C" windows_stops ctrl-c 130
  windows_try "the closed console" windows_stops close 129
  wineserver -k || true
}

# The test programs that need nothing of POSIX, and of those with Vulkan the whole models.
windows_tests=(test_status test_plan test_formats test_tokenizer test_decoder test_stops test_chat test_gguf_tokenizer
  test_gguf test_generation test_config test_config_released test_names test_ops test_prune_rrqr test_prune_methods test_rank
  test_session test_models)

# windows_zip FOLDER: FOLDER.zip, unpacked again into FOLDER.
windows_zip() {
  local name
  rm -rf "$1" "$1.zip"
  cmake --install "$windows/build" --strip --prefix "$1" >"$windows/install.log" 2>&1 || return
  cp -r LICENSE "$windows/prefix/licenses" "$1/" && rm "$1/licenses/cmocka" || return
  for name in mingw-w64-common gcc-mingw-w64-base; do
    cp "/usr/share/doc/$name/copyright" "$1/licenses/$name" || return
  done
  (cd "${1%/*}" && zip -qr "${1##*/}.zip" "${1##*/}" && rm -rf "$1" && python3 -m zipfile -e "$1.zip" .)
}

# windows_full PROGRAM SPIRV: everything, with the pruner, the test programs and a ZIP.
windows_full() {
  local name to=$windows/deltaic
  mkdir -p "$windows"
  stage "libraries for Windows" windows_libraries full >"$windows/libraries.log" 2>&1 ||
    die "the libraries cannot be built; all of the output is in build/windows/libraries.log"
  stage "building for Windows" windows_build full "$2" ||
    die "the build failed; all of the output is in build/windows/build/bootstrap.log"
  cmake --build "$windows/build" -j "$jobs" --target "${windows_tests[@]}" >"$windows/tests.log" 2>&1 ||
    die "the tests do not build; all of the output is in build/windows/tests.log"
  say "testing under Wine"
  windows_try "the exports of deltaic" windows_exports deltaic
  windows_try "the exports of deltaic_prune" windows_exports deltaic_prune
  windows_try "greedy text on the CPU" windows_compare "$1" cpu
  windows_try "greedy text and cached pipelines on Wine's Vulkan" windows_caches "$1"
  windows_try "Ctrl-C" windows_stops ctrl-c 130
  windows_try "the closed console" windows_stops close 129
  windows_try "prune" windows_prune
  for name in "${windows_tests[@]}"; do
    windows_try "$name" windows_run "$windows/build/tests/$name.exe"
  done
  stage "making the ZIP" windows_zip "$to" || die "no ZIP could be made; see build/windows/install.log"
  windows_try "a program built against the ZIP" windows_embed "$to"
  stage "greedy tokens of all checkpoints on the CPU" \
    windows_try "greedy tokens of all checkpoints on the CPU" windows_greedy "$1" "$to/bin/deltaic.exe" cpu
  stage "greedy tokens of all checkpoints on Wine's Vulkan" \
    windows_try "greedy tokens of all checkpoints on Wine's Vulkan" windows_greedy "$1" "$to/bin/deltaic.exe" 1
  wineserver -k || true
  say "build/windows/deltaic.zip has the program, the DLLs and what building with them needs"
}
