#!/bin/bash
# examples.sh EXAMPLE PROGRAM TOP: an example writes what the program writes, and says one sentence when it cannot.
set -euo pipefail
example=$1 program=$2 model=$3/models/novelist
folder=$(mktemp -d -p "$PWD" examples.XXXXXX)
trap 'rm -rf "$folder"' EXIT
prompt="The old house stood"
export XDG_CACHE_HOME=$folder/cache
"$program" generate -m "$model" -q --no-echo --greedy -n 40 --prompt "$prompt" >"$folder/expected"
arguments=("$model" "$prompt" 40)
if [[ $example == *frames ]]; then arguments+=("$folder/frame.ppm"); fi
"$example" "${arguments[@]}" >"$folder/text" 2>"$folder/report"
cat "$folder/text" "$folder/report"
cmp "$folder/text" "$folder/expected"
(($(wc -w <"$folder/text") > 20))
if [[ $example == *frames ]]; then
  grep -E '^[0-9]+ frames, 40 tokens; of 16.7 ms a frame took [0-9.]+ \(median\), the longest [0-9.]+$' "$folder/report"
  (($(wc -c <"$folder/frame.ppm") == 15 + 320 * 180 * 3))
  # A new file: words in it show that this run generates, and so that it has its handler for SIGINT.
  : >"$folder/long"
  "$example" "$model" "$prompt" 1000000 >"$folder/long" 2>"$folder/report" &
  until (($(wc -w <"$folder/long") > 3)); do
    kill -0 $! || { cat "$folder/report" && exit 1; }
    sleep 0.1
  done
  kill -INT $!
  code=0
  wait $! || code=$?
  ((code == 130))
  grep -E '^[0-9]+ frames, [0-9]+ tokens;' "$folder/report"
fi
if "$example" no/such/model a >"$folder/text" 2>"$folder/report"; then exit 1; fi
[[ ! -s $folder/text ]] && grep -x "${example##*/example_}: no/such/model: no such file or folder" "$folder/report"
