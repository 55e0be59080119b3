#!/bin/bash
# check_store.sh PROGRAM TOP: what --check-store prints, and the store's options that are refused.
set -euo pipefail
. "$(dirname "$0")/tools.sh"
check() { "$program" serve --device cpu --check-store "$@" >"$dir/out" 2>"$dir/err"; }
refused() { # CODE WORDS ARGS...
  local code=$1 words=$2 got=0
  shift 2
  "$program" serve --device cpu "$@" >"$dir/out" 2>"$dir/err" || got=$?
  [[ $got == "$code" && ! -s $dir/out ]] && grep -q -e "$words" "$dir/err" && return
  echo "$*: $got"
  cat "$dir/err"
  exit 1
}
head -c 6000 "$top/docs/tour.md" >"$dir/text"
for model in tiny_gated_deltanet tiny_delta_net_global; do
  check "$dir/text" "$top/tests/vectors/models/$model"
  # Exact, then two that take less room and lose little.
  awk 'NR == 1 { if (!/in 8 turns/) exit 1; next }
    NR == 2 { next }
    NR == 3 { if ($1 != 32 || $5 != "+0.000000") exit 1; exact = $2; next }
    NR == 4 { if ($1 != 16 || $2 > 0.8 * exact || $5 > 0.001 || $5 < -0.001) exit 1; some = $2; next }
    NR == 5 { if ($1 != 8 || $2 > 0.8 * some || $5 > 0.05 || $5 < -0.05) exit 1; seen = 1 }
    END { exit !seen }' "$dir/out" || { cat "$dir/out"; exit 1; }
done
echo short >"$dir/short"
refused 1 'at least 64 tokens' --check-store "$dir/short" "$top/tests/vectors/models/tiny_gated_deltanet"
refused 1 'none: no such file' --check-store "$dir/none" "$top/tests/vectors/models/tiny_gated_deltanet"
refused 2 'neither redis:// nor rediss://' --store localhost "$top/models/novelist"
refused 2 'takes 32, 16 or 8, not 12' --store-bits 12 "$top/models/novelist"
refused 2 'goes with --store rediss' --store redis://localhost --store-ca x "$top/models/novelist"
refused 2 'stored exactly' --reproducible --store redis://localhost --store-bits 8 "$top/models/novelist"
