#!/bin/bash
# greedy.bash DEVICE COMMAND...: for each checkpoint of models/ and tests/vectors/models a line with how many greedy
# tokens COMMAND (the program, or wine and the program) chooses as the reference has them. The prompt and the tokens are
# the reference's, from float64. Fails when a token differs.
set -euo pipefail
device=$1
shift

# greedy CHECKPOINT REFERENCE
greedy() {
  local line
  line=$("${command[@]}" validate "$1" "$2" --device "$device" --quiet | tr -d '\r' | grep '^greedy ') || true
  [[ $line =~ ^greedy\ +([0-9]+)\ of\ ([0-9]+)\ as\ in ]] || line="greedy     no tokens"
  echo "$1: ${line#greedy     }"
  count=$((count + 1))
  if [[ $line == *" no tokens" || ${BASH_REMATCH[1]} != "${BASH_REMATCH[2]}" ]]; then different+=("$1"); fi
}

command=("$@") count=0 different=()
greedy models/novelist tests/vectors/models/novelist.safetensors
for folder in tests/vectors/models/*/; do
  folder=${folder%/} checkpoint=$folder reference=$folder/reference.safetensors
  # A GGUF file without a reference of its own has the weights of the released_ folder.
  if [[ ! -e $reference ]]; then reference=${folder/gguf_/released_}/reference.safetensors; fi
  if [[ -e $folder/model.gguf ]]; then checkpoint=$folder/model.gguf; fi
  greedy "$checkpoint" "$reference"
done
echo "$count checkpoints, ${#different[@]} with other tokens: ${different[*]-}"
((${#different[@]} == 0))
