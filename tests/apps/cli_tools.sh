# cli_tools.sh: what the tests of the program share; sourced with PROGRAM [TOP]. Sets program, top and dir, a folder
# below the current one that goes at the end, with the caches and temporary files of the program in it.
program=$(realpath "$1") top=${2-}
[ -x "$program" ] || { echo "$0: no program $program"; exit 1; }
export LC_ALL=C XDG_CACHE_HOME TMPDIR
dir=$(mktemp -d -p "$PWD" "$(basename "$0" .sh).XXXXXX")
trap 'rm -rf "$dir"' EXIT
XDG_CACHE_HOME=$dir/cache TMPDIR=$dir/tmp
mkdir "$TMPDIR"
always=()  # what follows the program's name in every run
checks=0 failures=0

complain() {
  failures=$((failures + 1))
  echo "FAILED: $*"
  sed 's/^/  out: /' "$dir/out" | tail -5
  sed 's/^/  err: /' "$dir/err" | head -5
}

# From here on the program runs under the newest validation layer and Mesa, where DELTAIC_LAUNCHER, with-new-vulkan, is.
watch() {
  [ -n "${DELTAIC_LAUNCHER-}" ] || return
  printf '%s\n' '#!/bin/sh' "BARE=1 MESA=mesa26 exec '$DELTAIC_LAUNCHER' '$program' \"\$@\"" >"$dir/watched"
  chmod +x "$dir/watched"
  program=$dir/watched
  VK_LOADER_DEBUG=layer "$program" devices >"$dir/out" 2>"$dir/err"
  last=watched && err_has 'Insert instance layer "VK_LAYER_KHRONOS_validation"' && out_has 'Mesa 2[6-9]'
}
# Sets vulkan to the numbers of the Vulkan devices that can be used, and watches from here on. DELTAIC_TEST_DEVICE=cpu: none.
find_vulkan() {
  vulkan=
  [ "${DELTAIC_TEST_DEVICE-}" != cpu ] || return
  watch
  vulkan=$("$program" devices --brief 2>/dev/null | sed -n '/not usable/d; s/^[* ]*\([0-9][0-9]*\) .*/\1/p')
  [ "$vulkan" ] || complain "there is no Vulkan device to test on"
}

# run CODE ARGS...: runs the program, keeps its streams in $dir/out and $dir/err, checks the exit code.
run() {
  local code=$1 got=0
  shift
  last="deltaic ${always[*]:+${always[*]} }$*"
  checks=$((checks + 1))
  "$program" "${always[@]}" "$@" >"$dir/out" 2>"$dir/err" </dev/null || got=$?
  [ $got = "$code" ] || complain "$last: exit code $got, not $code"
  ! grep -q 'Validation Error' "$dir/out" "$dir/err" || complain "$last: the validation layer reports errors"
}
out_has() { grep -q -e "$1" "$dir/out" || complain "$last: no '$1' on standard output"; }
err_has() { grep -q -e "$1" "$dir/err" || complain "$last: no '$1' on standard error"; }
out_empty() { [ ! -s "$dir/out" ] || complain "$last: standard output is not empty"; }
err_empty() { [ ! -s "$dir/err" ] || complain "$last: standard error is not empty"; }
json() {
  if command -v python3 >/dev/null; then python3 -m json.tool <"$dir/out" >"$dir/json" 2>&1 || complain "$last: bad JSON"
  else [ "$(head -c 1 "$dir/out")$(tail -n 1 "$dir/out")" = "{}" ] || complain "$last: bad JSON"; fi
}
# refused CODE PATTERN ARGS...: nothing on standard output, one sentence on standard error.
refused() {
  local code=$1 pattern=$2
  shift 2
  run "$code" "$@"
  out_empty
  [ "$(wc -l <"$dir/err")" = 1 ] || complain "$last: not one sentence"
  err_has "$pattern"
}
