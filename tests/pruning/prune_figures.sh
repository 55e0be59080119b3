#!/bin/bash
# prune_figures.sh PROGRAM TOP: after a failure behind the pruning, prune_figures leaves no folder.
set -eu
program=$1 tokens=$2/tests/vectors/grad/tiny_gated_deltanet.safetensors
dir=$(mktemp -d -p "$PWD")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
run() { env -u RECOVER "$program" "$2/tests/vectors/models/tiny_gated_deltanet" "$tokens:tokens" "$tokens:tokens" l1 "$3"; }
run "$@" 0.5 | grep -q '^l1  *0.5  *[0-9]'
if run "$@" 0.5+recover 2>err; then exit 1; fi
grep -q 'RECOVER is not set' err
[ "$(ls)" = err ] || { echo "left behind: $(ls)"; exit 1; }
