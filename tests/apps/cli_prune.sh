#!/bin/bash
# cli_prune.sh PROGRAM TOP: `deltaic prune` on the small models: what it writes, resumes, reports and refuses.
set -u
. "$(dirname "$0")/cli_tools.sh"
always=(prune -d cpu)
models=$top/tests/vectors/models
tiny=$models/tiny_gated_deltanet
text=$dir/text
head -c 1500 "$top/docs/tour.md" >"$text"
# nothing_new CODE PATTERN ARGS...: refused, and nothing written.
nothing_new() {
  refused "$@"
  [ -z "$(ls -d "$dir"/new* 2>/dev/null)" ] || complain "$last: something was written"
}

# ---- a checkpoint
run 0 "$tiny" "$dir/half" --cut 0.5 --text "$text" -w 64 --eval "$text" --plot "$dir/heads.png"
out_has '^evaluated  *on .*text, .* predictions$' && out_has '^pruned  *[0-9.]*  *[0-9.]*$'
out_has '^state .* saved)'
out_has 'kept  of'
[ "$(head -c 4 "$dir/heads.png" | tail -c 3)" = PNG ] || complain "$last: no picture"
for file in config.json model.safetensors tokenizer.json; do
  [ -s "$dir/half/$file" ] || complain "$last: no $file"
done
[ ! -e "$dir/half/reference.safetensors" ] || complain "$last: other weights were copied"
grep -q '"head_dim": 16' "$dir/half/config.json" || complain "$last: the config does not say 16"
head -c 4000 "$dir/half/model.safetensors" | grep -q '"deltaic.method":"drrqr"' || complain "$last: no metadata"
"$program" generate -m "$dir/half" -d cpu -q --no-echo -n 3 --prompt a >/dev/null 2>"$dir/err" || complain "it does not run"
"$program" info "$dir/half" --json | grep -q '"key_size": *16' || complain "info does not say 16"

# ---- once more
nothing_new 1 'is there already (--force replaces' "$tiny" "$dir/half" --cut 0.5 --method l1
nothing_new 2 'method l1 takes no --swaps, which is for drrqr' "$tiny" "$dir/new" --cut 0.5 --method l1 --swaps 3
nothing_new 2 'per-layer is for what is found out' "$tiny" "$dir/new" --cut 0.5 --method l1 --per-layer
nothing_new 2 'plot draws what a text shows' "$tiny" "$dir/new" --cut 0.5 --method l1 --plot "$dir/new.png"
run 0 --help && ! grep -q GGUF "$dir/out" || complain "$last: GGUF files cannot be pruned"
nothing_new 2 'ridge goes with --refit' "$tiny" "$dir/new" --cut 0.5 --method l1 --ridge 0.1
nothing_new 2 'sweep tries all methods and shares: it takes no --cut' --sweep "$tiny" --text "$text" --eval "$text" --cut 0.5
run 0 "$tiny" "$dir/half" --cut 0.75 --method l1 --force --json
json
grep -q '"head_dim": 8' "$dir/half/config.json" || complain "$last: not replaced"
[ "$(ls -A "$dir" | grep -c 'half')" = 1 ] || complain "$last: left something behind"

# ---- statistics: kept, and read by other methods and targets without a text
ln -s kept "$dir/statistics"
echo mine >"$dir/kept.tmp" && cp "$dir/kept.tmp" "$dir/statistics.tmp"
run 0 "$tiny" "$dir/a" --cut 0.5 --text "$text" -w 64 --statistics "$dir/statistics"
[ -L "$dir/statistics" ] && [ -s "$dir/kept" ] || complain "$last: what the link names was not written"
cmp -s "$dir/kept.tmp" "$dir/statistics.tmp" || complain "$last: a neighbour was taken"
run 0 "$tiny" "$dir/b" --cut 0.5 --statistics "$dir/statistics"
cmp -s "$dir/a/model.safetensors" "$dir/b/model.safetensors" || complain "$last: not the same channels"
run 0 "$tiny" "$dir/c" --method s-wanda --keep 20,7,32,1 --statistics "$dir/statistics"
grep -q '"key_sizes"' "$dir/c/config.json" || complain "$last: no list of sizes"
"$program" info "$dir/c" | grep -q '^layers .*; keys of 1 to 32$' || complain "info does not say that layers differ"
run 0 "$tiny" "$dir/d" --keep auto --statistics "$dir/statistics" --json
json
run 0 "$tiny" "$dir/e" --volume-lost 0.3 --per-layer --side queries --statistics "$dir/statistics"
nothing_new 1 'another model' "$models/tiny_delta_net" "$dir/new" --cut 0.5 --statistics "$dir/statistics"

# ---- the refit
run 0 "$tiny" "$dir/f" --cut 0.75 --text "$text" -w 64 --eval "$text" --refit
out_has '^refitted .*%$' && ! grep -q '^held back' "$dir/err" || complain "$last: something was held back"
printf 'a%.0s' {1..300} >"$dir/same" # says little, and with next to no ridge that is overdone
run 0 "$tiny" "$dir/g" --cut 0.25 --text "$dir/same" -w 64 --eval "$text" --refit --ridge 0.000001 && out_has '^refitted .*worse by '

# ---- gradients: kept in the statistics too, and read from there
run 0 "$tiny" "$dir/h" --cut 0.5 --method grad --text "$text" -n 200 -w 64 --statistics "$dir/gradients" --refit
out_has '^gradients  *200 tokens in'
grep -q '^calibration' "$dir/out" && complain "$last: activations were measured"
run 0 "$tiny" "$dir/i" --cut 0.5 --method grad --statistics "$dir/gradients" --json
json
out_has '"gradient_tokens": 200'
grep -q 'deltaic.method":"grad"' "$dir/i/model.safetensors" || complain "$last: no metadata"
nothing_new 1 'grad needs a calibration text' "$tiny" "$dir/new" --cut 0.5 --method grad --statistics "$dir/statistics"

# ---- recovery, after a refit
run 0 "$tiny" "$dir/l" --cut 0.75 --text "$text" -w 64 --eval "$text" --refit --recover "$text"
out_has '^ *mean NLL  *perplexity  *of the loss recovered$'
for row in whole pruned refitted recovered; do out_has "^$row  *[0-9.]*  *[0-9.]*"; done
tail -n 1 "$dir/out" | grep -q '^recovered .*%$' || complain "$last: the table is not the end"
out_has '^recovery .* tokens'

# ---- one text for everything: its end is held back, and calibration and recovery do not see it
run 0 "$tiny" "$dir/o" --cut 0.75 -w 64 --refit --recover "$text"
held=$(sed -n 's/^held back: the last \([0-9]*\) of .* tokens of .*/\1/p' "$dir/err") all=$(sed -n 's/^held back: .* of \([0-9,]*\) tokens.*/\1/p' "$dir/err" | tr -d ,)
[ "$held" = $((all / 10 > 64 ? all / 10 : 64)) ] || complain "$last: held back '$held' of '$all'"
out_has "^evaluated  *on the last $held tokens of .*/text, held back; .* predictions$"
for row in whole pruned refitted recovered; do out_has "^$row  *[0-9.]*  *[0-9.]*"; done
{ head -c 1400 "$text" && printf 'x%.0s' {1..100}; } >"$dir/other" # another end, which nothing but the evaluation reads
run 0 "$tiny" "$dir/p" --cut 0.75 -w 64 --refit --text "$dir/other" --recover "$dir/other" --json && json
[ "$(sed -n 's/.*"held_back_tokens": \([0-9]*\),.*/\1/p' "$dir/out")" = "$held" ] || complain "$last: not as much held back"
cmp -s "$dir/o/model.safetensors" "$dir/p/model.safetensors" || complain "$last: what is held back was read"
last='prune --recover -' checks=$((checks + 1))
"$program" "${always[@]}" "$tiny" "$dir/q" --cut 0.75 -w 64 --refit --recover - <"$text" >"$dir/out" 2>"$dir/err"
cmp -s "$dir/o/model.safetensors" "$dir/q/model.safetensors" || complain "$last: other weights than of the same file"
for threads in 1 2; do
  run 0 "$tiny" "$dir/m$threads" --cut 0.75 --method l1 -w 64 --recover "$text" --rate 0.0001 -t $threads --json
  json
done
cmp -s "$dir/m1/model.safetensors" "$dir/m2/model.safetensors" || complain "$last: other bits by two threads"
run 0 "$tiny" "$dir/n" --cut 0.75 --method l1 -w 64
cmp -s "$dir/m1/model.safetensors" "$dir/n/model.safetensors" && complain "$last: the recovery wrote nothing"
"$program" generate -m "$dir/l" -d cpu -q --no-echo -n 3 --prompt a >/dev/null 2>"$dir/err" || complain "it does not run"
nothing_new 2 'rate goes with --recover' "$tiny" "$dir/new" --cut 0.5 --method l1 --rate 0.1
nothing_new 1 'a step of --recover reads 1024; without --eval one more window' "$tiny" "$dir/new" --cut 0.5 --method l1 --recover <(echo short)
nothing_new 1 'a step of --recover reads 1024$' "$tiny" "$dir/new" --cut 0.5 --method l1 --recover <(echo short) --eval "$text"

# ---- statistics of another text serve with the text of --recover; those of its beginning go on, and say what fails
last='prune --recover, statistics'
mkdir "$dir/loud" && cp "$tiny"/*.json "$dir/loud" # every weight 1e18, and the embeddings of all tokens but x 0
weights=$tiny/model.safetensors first=$((8 + $(od -An -t u8 -N 8 "$tiny/model.safetensors"))) # byte of the tensors
{ head -c $first "$weights"; tail -c +$((first + 1)) "$weights" | tr '\0-\377' '[\135*]'; } >"$dir/loud/model.safetensors"
at=$((first + $(head -c $first "$weights" | grep -ao '"model.embeddings.weight":{[^}]*' | grep -o '[0-9]*,[0-9]*\]$' | sed 's/,.*//')))
row=128 x=123 # bytes, the id
write_at() { dd of="$dir/loud/model.safetensors" bs=$row seek=$1 oflag=seek_bytes conv=notrunc status=none; }
head -c $((259 * row)) /dev/zero | write_at $at
printf '\135%.0s' $(seq $row) | write_at $((at + x * row))
tr -d x <"$text" >"$dir/quiet" && { head -c 600 "$dir/quiet" && printf x && tail -c +600 "$dir/quiet"; } >"$dir/mixed"
run 0 "$dir/loud" "$dir/u" --cut 0.5 -w 64 --text "$dir/quiet" -n 128 --statistics "$dir/begun"
nothing_new 1 'layer 0: .* not all are finite' "$dir/loud" "$dir/new" --cut 0.5 -w 64 --statistics "$dir/begun" --recover "$dir/mixed" -q
tac "$dir/quiet" >"$dir/turned"
run 0 "$tiny" "$dir/v" --cut 0.5 -w 64 --statistics "$dir/statistics" --recover "$dir/turned" && out_has '^calibration  *[0-9,]* tokens, text'

# ---- texts are read as tune reads them: a record or a file of tokens is no plain text
printf '{"text": "%s", "other": 1}\n' "$(tr -d '"\\\n' <"$text")" >"$dir/text.JSONL"
same_weights() { cmp -s "$dir/$1/model.safetensors" "$dir/$2/model.safetensors"; }
run 0 "$tiny" "$dir/plain" --cut 0.5 --text <(tr -d '"\\\n' <"$text") -w 64
run 0 "$tiny" "$dir/record" --cut 0.5 --text "$dir/text.JSONL" -w 64 --eval "$dir/text.JSONL"
tokens() { sed -n 's/^calibration  *\([0-9,]*\) tokens.*/\1/p' "$dir/out" | tr -d ,; }
letters=$(tr -d '"\\\n' <"$text" | wc -c)
[ "$(tokens)" = $((letters + 2)) ] || complain "$last: $(tokens) tokens of $letters letters, a begin and an end"
ids=$letters # the bytes of a text are tokens, each 3 more than the byte
header="{\"tokens\":{\"dtype\":\"I32\",\"shape\":[$ids],\"data_offsets\":[0,$((4 * ids))]}}"
{ printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
  tr -d '"\\\n' <"$text" | od -An -v -tu1 | awk '{ for (i = 1; i <= NF; i++) printf "\\x%02x\\0\\0\\0", $i + 3 }' | xargs -0 printf; } >"$dir/ids.safetensors"
run 0 "$tiny" "$dir/ids" --cut 0.5 --text "$dir/ids.safetensors" -w 64
same_weights plain ids || complain "$last: not the channels of the same plain text"
echo '{' >"$dir/broken.jsonl"
nothing_new 1 'broken.jsonl, line 1: is not JSON' "$tiny" "$dir/new" --cut 0.5 --method l1 --eval "$dir/broken.jsonl"
nothing_new 1 'broken.jsonl, line 1: is not JSON' "$tiny" "$dir/new" --cut 0.5 --method l1 --recover "$dir/broken.jsonl"

# ---- an adapter is merged before everything else: the same as from the merged folder
"$program" tune -d cpu "$tiny" "$dir/tuned" --adapter-out "$dir/adapter" --text "$text" -w 64 --steps 4 -q >/dev/null 2>"$dir/err" || complain "no adapter"
whole=(--cut 0.75 --text "$text" -w 64 --eval "$text" --refit --recover "$text")
run 0 "$dir/tuned" "$dir/r" "${whole[@]}" && grep '^whole\|^pruned\|^refitted\|^recovered' "$dir/out" >"$dir/losses"
run 0 "$tiny" "$dir/s" "${whole[@]}" --adapter "$dir/adapter" --statistics "$dir/adapted" && out_has '^adapter .*adapter, merged$'
cmp -s "$dir/r/model.safetensors" "$dir/s/model.safetensors" || complain "$last: other weights than from the merged folder"
grep '^whole\|^pruned\|^refitted\|^recovered' "$dir/out" | cmp -s - "$dir/losses" || complain "$last: other losses than from the merged folder"
cmp -s "$dir/l/model.safetensors" "$dir/s/model.safetensors" && complain "$last: the adapter changed nothing"
nothing_new 1 'another model' "$tiny" "$dir/new" --cut 0.5 --statistics "$dir/adapted"
run 0 "$tiny" "$dir/t" --cut 0.5 --statistics "$dir/adapted" --adapter "$dir/adapter" --json && json && out_has '"adapter": "'
run 0 --sweep "$tiny" --adapter "$dir/adapter" --text "$text" -n 300 -w 64 --eval "$text" --json && json && out_has '"adapter": "'
nothing_new 1 'is a GGUF file; adapters are merged' "$models/gguf_blocks/model.gguf" "$dir/new" --cut 0.5 --method l1 --adapter "$dir/adapter"
nothing_new 1 'is for no tensor of' "$models/tiny_mamba2" "$dir/new" --cut 0.5 --method l1 --adapter "$dir/adapter"
cp "$tiny/config.json" "$dir/adapter"
nothing_new 1 'is the folder of --adapter; choose another OUT' "$tiny" "$dir/adapter" --cut 0.5 --method l1 --adapter "$dir/adapter" --force
[ -z "$(ls -A "$dir/tmp"; ls -d "$dir"/*.tmp 2>/dev/null | grep -v '/kept.tmp$\|/statistics.tmp$')" ] || complain "$last: left something behind"

# ---- methods that look at no text measure nothing on one
run 0 "$tiny" "$dir/j" --cut 0.5 --method l1 --text "$text" -w 64 --refit
out_has '^refit'
grep -q '^calibration' "$dir/out" && complain "$last: activations were measured"
run 0 "$tiny" "$dir/k" --keep auto --method l1 --text "$text" -w 64
out_has '^calibration'

# ---- all methods
run 0 --sweep "$tiny" --text "$text" -n 300 -w 64 --eval "$text" --plot "$dir/sweep.png"
for method in random l1 s-wanda grad drrqr pca; do out_has "^$method .*[0-9]\.[0-9]"; done
[ -s "$dir/sweep.png" ] || complain "$last: no picture"
[ -z "$(ls -A "$dir/tmp")" ] || complain "$last: left something behind"

# ---- what cannot be
: >"$dir/empty"
echo short >"$dir/short"
weights=$tiny/model.safetensors header=$(od -An -t u8 -N 8 "$tiny/model.safetensors")
mkdir "$dir/huge" && cp "$tiny"/*.json "$dir/huge" # every weight 1e18: activations overflow
{ head -c $((header + 8)) "$weights"; tail -c +$((header + 9)) "$weights" | tr '\0-\377' '[\135*]'; } >"$dir/huge/model.safetensors"
nothing_new 1 'layer 0: .* not all are finite' "$dir/huge" "$dir/new" --cut 0.5 --text "$text"
nothing_new 1 'huge: its logits are not finite' "$dir/huge" "$dir/new" --cut 0.5 --method l1 --eval "$text"
always=(perplexity -d cpu) && nothing_new 1 'huge: its logits are not finite' "$dir/huge" "$text" && always=(prune -d cpu)
always=(generate -d cpu) && run 1 -q -n 3 "$dir/huge" && err_has 'huge: its logits are not finite'
run 1 -q -n 3 "$dir/huge" --json && out_has '"end": "error"'
printf 'a\nb\n' >"$dir/prompts"
run 1 -q -n 3 "$dir/huge" --prompts "$dir/prompts" && err_has 'huge: its logits are not finite in 2 of 2 texts'
[ "$(grep -c '"end":"error","stop":null}$' "$dir/out")" = 2 ] || complain "$last: not both texts"
always=(prune -d cpu)
nothing_new 2 'from 0 to below 1' "$tiny" "$dir/new" --cut 1 --method l1
nothing_new 2 'from 0 to below 1' "$tiny" "$dir/new" --cut x --method l1
nothing_new 2 'keep must be' "$tiny" "$dir/new" --keep 0 --method l1
nothing_new 1 'cannot keep 33 of the 32' "$tiny" "$dir/new" --keep 33 --method l1
nothing_new 2 'how much' "$tiny" "$dir/new"
nothing_new 2 'give one' "$tiny" "$dir/new" --cut 0.5 --keep 4
nothing_new 2 'no method' "$tiny" "$dir/new" --cut 0.5 --method l3
nothing_new 2 'needs a calibration text' "$tiny" "$dir/new" --cut 0.5
nothing_new 2 'give CHECKPOINT and OUT' "$tiny" --cut 0.5
nothing_new 1 'too short' "$tiny" "$dir/new" --cut 0.5 --text "$dir/empty"
nothing_new 1 'too few' "$tiny" "$dir/new" --cut 0.5 --text "$dir/short"
nothing_new 1 'nothing to prune' "$models/ablation_transformer" "$dir/new" --cut 0.5 --method l1
nothing_new 1 'nothing to prune' "$models/tiny_mamba2" "$dir/new" --cut 0.5 --method l1
nothing_new 1 'is the checkpoint that is read' "$tiny" "$tiny" --cut 0.5 --method l1 --force
nothing_new 1 'no checkpoint' "$tiny" "$dir/tmp" --cut 0.5 --method l1 --force
nothing_new 1 'no such file or folder' "$tiny" "$dir/new" --cut 0.5 --text "$text" --statistics "$dir/missing/statistics"
nothing_new 1 'missing: no such file or folder' "$tiny" "$dir/missing/new" --cut 0.5 --method l1
(trap '' XFSZ; ulimit -f 64; nothing_new 1 'cannot be written' "$tiny" "$dir/new" --cut 0.5 --method l1; exit $failures) ||
  failures=$((failures + 1))

echo "$checks runs, $failures failures"
[ $failures = 0 ]
