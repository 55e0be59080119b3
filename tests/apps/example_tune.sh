#!/bin/bash
# example_tune.sh EXAMPLE PROGRAM TOP: the example trains a model that the program runs, and says what is wrong.
set -euo pipefail
example=$1 program=$2 model=$3/tests/vectors/models/tiny_gated_deltanet
folder=$(mktemp -d -p "$PWD" example_tune.XXXXXX)
trap 'rm -rf "$folder"' EXIT
head -c 4000 "$3/docs/tour.md" >"$folder/text"
"$example" "$model" "$folder/out" <"$folder/text" | tee "$folder/report"
(($(grep -cE '^step [1-8]: [2-5]\.[0-9]{3}$' "$folder/report") == 8))
cmp -s "$model/model.safetensors" "$folder/out/model.safetensors" && exit 1
XDG_CACHE_HOME=$folder/cache "$program" generate -m "$folder/out" -d cpu -q -n 3 --prompt a >/dev/null
if "$example" "$model" "$folder/new" <<<"short" 2>"$folder/report"; then exit 1; fi
grep -x 'tune: the text has fewer than 528 tokens' "$folder/report"
if "$example" no/such/model "$folder/new" <"$folder/text" 2>"$folder/report"; then exit 1; fi
grep 'no/such/model' "$folder/report"
