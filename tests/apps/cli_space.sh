#!/bin/bash
# cli_space.sh PROGRAM TOP: with little address space, a command works or says in one sentence what is missing; only
# prune, rank, tune and the gradients of validate load OpenBLAS; and what these say without their plugin.
set -u
. "$(dirname "$0")/cli_tools.sh"
always=()
tiny=$top/tests/vectors/models/tiny_gated_deltanet
growing=$top/tests/vectors/models/tiny_delta_net_global
head -c 1500 "$top/docs/tour.md" >"$dir/text"
cat "$top"/docs/t*.md "$top"/docs/p*.md >"$dir/long"

# limited KIB ARGS...: exit code 0, or 1 or 3 and one sentence.
limited() {
  local kib=$1
  code=0
  checks=$((checks + 1))
  shift
  (ulimit -v "$kib" && exec timeout 60 "$program" "$@") </dev/null >"$dir/out" 2>"$dir/err" || code=$?
  last="ulimit -v $kib: deltaic $*"
  case $code in
    0) ;;
    1 | 3) [ "$(wc -l <"$dir/err")" = 1 ] && grep -q "^deltaic $1: " "$dir/err" || complain "$last: not one sentence" ;;
    *) complain "$last: exit code $code" ;;
  esac
}
for kib in 60000 80000 100000 120000 140000 160000 180000 200000; do
  limited $kib generate -m "$top/models/novelist" -d cpu -q --no-echo -n 2 --prompt a
  limited $kib info "$top/models/novelist"
  limited $kib rank "$tiny" --text "$dir/text" -d cpu
  limited $kib prune "$tiny" "$dir/half" --cut 0.5 --text "$dir/text" -w 64 -d cpu
  [ ! -e "$dir/half" ] || rm -r "$dir/half"
  limited $kib tune "$tiny" "$dir/tuned" --text "$dir/text" -w 48 --steps 2 -d cpu
  if [ $code = 0 ]; then rm -r "$dir/tuned"; else [ -z "$(ls -d "$dir"/tuned* 2>/dev/null)" ] || complain "$last: a part of it is left"; fi
  limited $kib devices --check -d cpu
  limited $kib generate -m "$growing" -d cpu -q --no-echo -n 2 --prompt a --context 4000000
  [ $code = 1 ] && err_has 'out of memory: [0-9]* bytes for the state of a session' || complain "$last: exit code $code"
done
# The drivers of Vulkan are loaded too: Mesa's lavapipe ends some processes by itself from 200,000 on, and fits in none
# below.
for kib in 60000 100000 140000 160000; do
  limited $kib devices
  out_has '^\*  *cpu ' && [ $code = 0 ] || complain "$last: no list"
  limited $kib generate -m "$tiny" -q --no-echo -n 2 --prompt a
  limited $kib generate -m "$growing" -q --no-echo -n 2 --prompt a --context 4000000
  [ $code = 1 ] || complain "$last: exit code $code"
done
# OpenBLAS is loaded, and a training step does not fit: the state before it is kept, and nothing else.
last="ulimit -v 600000: deltaic tune" code=0
(ulimit -v 600000 && exec timeout 60 "$program" tune "$tiny" "$dir/large" --text "$dir/long" -w 400 -b 128 --everything \
  --steps 2 -d cpu -q) </dev/null >"$dir/out" 2>"$dir/err" || code=$?
if [ $code != 1 ] || [ "$(wc -l <"$dir/err")" != 1 ]; then complain "$last: exit code $code, or not one sentence"; fi
err_has '^deltaic tune: out of memory: .*; the state after step 0 is in '
[ -s "$dir/large.state" ] && [ "$(ls -d "$dir"/large*)" = "$dir/large.state" ] || complain "$last: other files"
[ -z "$(ls -A "$TMPDIR")" ] || complain "temporary files are left"

libraries() { LD_DEBUG=libs "$program" "$@" 2>&1 </dev/null | grep -cE 'calling init.*(openblas|microhttpd|hiredis)'; }
[ "$(libraries generate -m "$top/models/novelist" -d cpu -q --no-echo -n 2 --prompt a)" = 0 ] ||
  complain "generate loads a plugin's libraries"
[ "$(libraries rank --help)" != 0 ] || complain "the test does not see OpenBLAS"
if "$program" serve --help >/dev/null 2>&1; then
  [ "$(libraries serve --help)" != 0 ] || complain "the test does not see libmicrohttpd"
fi

# The program alone, in a folder of its own.
cp "$program" "$dir/alone"
if readelf -d "$dir/alone" | grep -q 'libdeltaic'; then
  echo "the program needs libdeltaic: not tried alone"
else
  "$dir/alone" info "$tiny" >/dev/null || complain "alone: info does not run"
  "$dir/alone" prune --help >"$dir/out" 2>"$dir/err"
  [ $? = 1 ] && grep -q '^deltaic prune: .*deltaic_commands.so' "$dir/err" || complain "alone: prune says nothing"
fi
echo "$checks runs, $failures failures"
[ $failures = 0 ]
