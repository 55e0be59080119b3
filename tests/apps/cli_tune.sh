#!/bin/bash
# cli_tune.sh PROGRAM TOP: `deltaic tune` on the small models: what it trains, writes, resumes, reports and refuses.
set -u
. "$(dirname "$0")/cli_tools.sh"
always=(tune -d cpu)
models=$top/tests/vectors/models
tiny=$models/tiny_gated_deltanet
text=$dir/text
head -c 1500 "$top/LICENSE" >"$text"
# nothing_new CODE PATTERN ARGS...: refused, and nothing written.
nothing_new() {
  refused "$@"
  [ -z "$(ls -d "$dir"/new* 2>/dev/null)" ] || complain "$last: something was written"
}
# same A B: two checkpoints have the same weights.
same() { cmp -s "$dir/$1/model.safetensors" "$dir/$2/model.safetensors" || complain "$last: $1 and $2 differ"; }
# zeros FILE HEADER BYTES: a safetensors file whose tensors are zeros.
zeros() {
  { printf "\\x$(printf %02x $((${#2} % 256)))\\x$(printf %02x $((${#2} / 256)))\\0\\0\\0\\0\\0\\0%s" "$2"; head -c "$3" /dev/zero; } >"$1"
}
steps=(--text "$text" -w 48 --steps 6 --lora 4 --accumulate 2)
all=(--text "$text" -w 48 --steps 6)

# ---- a checkpoint, its report and the plot
run 0 "$tiny" "$dir/six" "${steps[@]}" --held-out "$text" --every 3 --plot "$dir/loss.png"
out_has '^trained .* numbers of 41 tensors, 12 of them by adapters of rank 4$'
out_has '^steps  *6, 1,128 tokens$'
out_has '^held out .* before, .* after (perplexity'
out_has '^memory  *.* planned, .* used$'
err_has '^memory of a step: .*: weights .*, moments .*, adapters .*, streams '
err_has '^step 3 of 6   loss .* held out .* tokens/s   .* left$'
err_has '^step 6 of 6   loss .* held out .* tokens/s$'
[ "$(head -c 4 "$dir/loss.png" | tail -c 3)" = PNG ] || complain "$last: no picture"
cmp -s "$tiny/config.json" "$dir/six/config.json" || complain "$last: another config"
[ -s "$dir/six/tokenizer.json" ] && [ ! -e "$dir/six/reference.safetensors" ] || complain "$last: other files"
[ "$(stat -c %s "$dir/six/model.safetensors")" = "$(stat -c %s "$tiny/model.safetensors")" ] || complain "$last: another size"
cmp -s "$tiny/model.safetensors" "$dir/six/model.safetensors" && complain "$last: nothing was trained"
[ ! -e "$dir/six.state" ] || complain "$last: a state is left"
always=()
run 0 tune "$tiny" "$dir/best" --text "$text" -w 48 --steps 1 # the best device: a GPU where there is one
always=(tune -d cpu)

# ---- six steps are three and three more
run 0 "$tiny" "$dir/parts/" "${steps[@]}" --stop-at 3 -t 1 && out_has '^steps  *3 of 6'
[ -s "$dir/parts.state" ] && [ ! -e "$dir/parts" ] || complain "$last: no state, or a checkpoint"
refused 1 'is there already: --resume' "$tiny" "$dir/parts" "${steps[@]}"
differs() { refused 1 "parts.state: .*$1" "$tiny" "$dir/parts" "${steps[@]}" --resume "${@:2}"; }
differs 'seed is 0 in the state and 9 now' --seed 9
differs 'window is 48 in the state and 40 now' -w 40
differs 'schedule is cosine in the state and constant now' --schedule constant
differs 'the state has a different text or task; resume with the same one$' --text "$tiny/config.json"
differs 'the state has a different held-out text, or none; resume with the same one$' --held-out "$text"
differs 'was trained with decay 0, and this training has decay 0.5$' --decay 0.5
differs 'was trained with rank 4, and this training has rank 8$' --lora 8
differs 'is a training of other tensors, or of adapters for others$' --whole norm
refused 1 'of another model' "$models/tiny_delta_net" "$dir/parts" "${steps[@]}" --resume
run 0 "$tiny" "$dir/parts" "${steps[@]}" --resume -t 2 --json && json
out_has '"done": 6'
out_has '"memory"' && out_has '"planned"'
[ ! -e "$dir/parts.state" ] || complain "$last: the state is left"
same six parts
refused 1 'is there already (--force' "$tiny" "$dir/parts" "${steps[@]}"
run 0 "$tiny" "$dir/parts" "${steps[@]}" --force --save-every 2
same six parts

run 0 "$tiny" "$dir/seen" "${steps[@]}" --stop-at 3 --held-out "$dir/text" && out_has '^held out .* before, .* after (perplexity'
run 0 "$tiny" "$dir/seen" "${steps[@]}" --resume --held-out "$dir/text" && out_has '^held out .* before, .* after' && same six seen

# ---- another rate from the third step on
run 0 "$tiny" "$dir/slower" "${steps[@]}" --stop-at 3 -q && mv "$dir/slower.state" "$dir/slow.state"
run 0 "$tiny" "$dir/slow" "${steps[@]}" --resume --rate 0.0001
err_has '^the largest rate was .* up to step 3 and is 0.0001 from there on$'
cmp -s "$dir/six/model.safetensors" "$dir/slow/model.safetensors" && complain "$last: the rate changed nothing"

# ---- layers that keep their values: --keep limits them, and --resume keeps as many as before
none_kept() { ! grep -q kept "$dir/err" || complain "$last: $(grep kept "$dir/err")"; }
run 0 "$tiny" "$dir/again" "${steps[@]}" --keep 0
none_kept && same six again
run 0 "$tiny" "$dir/again" "${steps[@]}" --keep 0 --force --stop-at 3
run 0 "$tiny" "$dir/again" "${steps[@]}" --force --resume
none_kept && same six again
run 0 "$tiny" "$dir/again" "${steps[@]}" --force --stop-at 3
err_has '^memory of a step: .*, kept '
run 0 "$tiny" "$dir/again" "${steps[@]}" --force --resume --keep 0
err_has '^kept layers: 0 bytes now, .* before the state was saved; the last bits of the result may differ$'

run 0 --help
out_has '--keep MIB' && out_has 'default: as much as fits$'
grep -A3 -- '--keep MIB' "$dir/out" | grep -q '(default' && complain "$last: a number that means no limit"

# ---- what cannot be written at the end is not lost
"$program" tune "$tiny" "$dir/blocked" "${steps[@]}" --stop-at 5 -q >/dev/null 2>&1 && mkdir "$dir/blocked"
refused 1 'is there already' "$tiny" "$dir/blocked" "${steps[@]}" --resume
rmdir "$dir/blocked" && run 0 "$tiny" "$dir/blocked" "${steps[@]}" --resume && same six blocked
mkdir "$dir/whole" && cp "$tiny"/*.json "$dir/whole"
refused 1 'has no adapter_config.json' "$tiny" "$dir/new" --adapter-out "$dir/whole" --force "${steps[@]}"
refused 2 'the same folder' "$tiny" "$dir/new" --adapter-out "$dir/new" "${steps[@]}"

# ---- a state that cannot be saved on the way does not end the training: the file would be too large
last="a full disk"
(ulimit -f 1000 && trap '' XFSZ && exec "$program" tune "$tiny" "$dir/narrow" "${all[@]}" --everything --save-every 2) \
  >"$dir/out" 2>"$dir/err" || complain "$last: exit code $?"
err_has 'the training goes on without the state after step 2$'
[ ! -e "$dir/narrow.state" ] && [ -s "$dir/narrow/model.safetensors" ] || complain "$last: a state, or no checkpoint"

# ---- nor the error of a state that cannot be saved at the end
last="a full disk at the end" code=0
(ulimit -f 100 && trap '' XFSZ && exec "$program" tune "$tiny" "$dir/narrow" "${all[@]}" --everything --force) \
  >"$dir/out" 2>"$dir/err" || code=$?
[ $code = 1 ] && err_has 'narrow.*: .*too large; the state after step 6 cannot be saved: .*narrow.state: .*too large$' || complain "$last: exit code $code"

# ---- Ctrl-C saves the state, from which the rest gives the same bits
: >"$dir/err"
set -m
"$program" tune "$tiny" "$dir/stopped" "${steps[@]}" --steps 4000 --every 2 --held-out "$text" --plot "$dir/stopped.png" >"$dir/out" 2>"$dir/err" &
set +m
for _ in $(seq 300); do grep -q '^step 2 ' "$dir/err" && break || sleep 0.05; done
code=0 last="Ctrl-C" && kill -INT $! && { wait $! || code=$?; }
[ $code = 130 ] && err_has 'stopped by Ctrl-C after step .* --resume goes on from'
out_has '^steps  *[0-9]* of 4,*000, ' && out_has '^loss .* first' && [ -s "$dir/stopped.png" ] || complain "$last: no report, or no plot"
# The loss of the held-out text is that of a step of --every, and says of which one if steps followed.
at=$(sed -n 's/^steps  *\([0-9]*\) of.*/\1/p' "$dir/out") seen=$(sed -n 's/^held out .* after step \([0-9]*\) .*/\1/p' "$dir/out")
out_has '^held out .* before, .* after' && [ $((${seen:-$at} % 2)) = 0 ] && [ "${seen:-0}" -lt "$at" ] || complain "$last: held out of step $seen, stopped at $at"
[ -s "$dir/stopped.state" ] && [ ! -e "$dir/stopped" ] || complain "Ctrl-C: no state, or a checkpoint"

# ---- adapters: the same weights as merged
run 0 "$tiny" "$dir/merged" "${steps[@]}" --adapter-out "$dir/adapter"
grep -q '"r": 4' "$dir/adapter/adapter_config.json" || complain "$last: no config of adapters"
run 0 "$tiny" --adapter-out "$dir/alone" "${steps[@]}" --stop-at 3
[ -s "$dir/alone.state" ] && [ ! -e "$dir/alone" ] || complain "$last: no state, or adapters"
run 0 "$tiny" --adapter-out "$dir/alone" "${steps[@]}" --resume
cmp -s "$dir/adapter/adapter_model.safetensors" "$dir/alone/adapter_model.safetensors" || complain "$last: other adapters"
for form in "$dir/merged" "$tiny --adapter $dir/adapter" "$tiny"; do
  "$program" generate -m $form -d cpu -q --greedy --no-echo -n 24 --prompt "The " >>"$dir/greedy" 2>"$dir/err" || complain "$form does not run"
  echo >>"$dir/greedy"
  "$program" perplexity -m $form -d cpu -q --json "$text" 2>"$dir/err" | grep '"nll"' >>"$dir/nll"
  "$program" rank -m $form -d cpu -q --json --text "$text" --tokens 40 2>"$dir/err" | grep -m 1 '"stable_rank"' >>"$dir/ranks"
done
[ "$(sort -u "$dir/ranks" | wc -l)" = 2 ] && [ "$(head -n 2 "$dir/ranks" | sort -u | wc -l)" = 1 ] || complain "adapters: other ranks"
always=() && refused 2 'takes no --adapter' rank "$tiny" --adapter "$dir/adapter" --text "$text" --plot "$dir"
refused 2 'adapter goes with one checkpoint' rank "$tiny" "$tiny" --adapter "$dir/adapter" --text "$text" && always=(tune -d cpu)
[ "$(sort -u "$dir/nll" | wc -l)" = 2 ] && [ "$(head -n 2 "$dir/nll" | sort -u | wc -l)" = 1 ] || complain "adapters: other losses"
[ "$(sed -n '1,/^$/p' "$dir/greedy" | head -n 1)" ] || complain "adapters: no text"
# Over a GGUF file: nearly the same loss, by weights that stay blocks, and memory for A and B.
always=()
run 0 quantize "$tiny" "$dir/tiny.gguf" --type q8_0 -q
bytes() { "$program" info "$dir/tiny.gguf" -d cpu --json "$@" | sed -n 's/.*"weights_bytes": \([0-9]*\).*/\1/p'; }
run 0 perplexity -m "$dir/tiny.gguf" -d cpu -q --json "$text" --adapter "$dir/adapter"
awk -F '[:,]' 'NR == 1 { merged = $2 } NR == FNR { next } /"nll"/ { exit !($2 - merged < 0.005 && merged - $2 < 0.005) }' "$dir/nll" "$dir/out" ||
  complain "$last: another loss than merged, $(head -n 1 "$dir/nll")"
[ "$(bytes --adapter "$dir/adapter")" -gt $(($(bytes) + 20000)) ] || complain "info: no memory for the adapter"
run 0 generate -m "$dir/tiny.gguf" -d cpu -q --adapter "$dir/adapter" -n 4 --prompt "The "
refused 1 'does not fit tensor output_norm.weight of .*gguf_blocks/model.gguf$' generate -m "$models/gguf_blocks/model.gguf" -d cpu --adapter "$dir/adapter" -n 1
always=(tune -d cpu)
mkdir "$dir/twice" && sed 's/"r": 4/"r": 1/' "$dir/adapter/adapter_config.json" >"$dir/twice/adapter_config.json"
q=base_model.model.model.layers.0.attn.q_proj
zeros "$dir/twice/adapter_model.safetensors" "{\"$q.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[1,64],\"data_offsets\":[0,256]},\
\"$q.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[64,1],\"data_offsets\":[256,512]},\
\"$q.weight\":{\"dtype\":\"F32\",\"shape\":[64,64],\"data_offsets\":[512,16896]}}" 16896
always=() && refused 1 'changes tensor model.layers.0.attn.q_proj.weight twice' generate -m "$tiny" -d cpu --adapter "$dir/twice" -n 1 && always=(tune -d cpu)

# Merged before other work: the same bits as from the merged folder. A state knows with which adapter it began.
nothing_left() { [ -z "$(ls -A "$dir/tmp"; ls -d "$dir"/*.tmp 2>/dev/null)" ] || complain "$last: left something behind"; }
always=()
run 0 tune "$tiny" "$dir/into" --adapter "$dir/adapter" && out_has '^adapter .*adapter, merged$' && out_has '^written .*into$'
same merged into; nothing_left
run 0 tune "$tiny" "$dir/into" --adapter "$dir/adapter" --force --json && json && out_has '"adapter": '
refused 1 'is there already (--force' tune "$tiny" "$dir/into" --adapter "$dir/adapter"
refused 2 '--adapter without --text or --task only merges: it takes no --steps' tune "$tiny" "$dir/new" --adapter "$dir/adapter" --steps 3
refused 2 'give CHECKPOINT and OUT' tune "$tiny" --adapter "$dir/adapter"
cp "$tiny/config.json" "$dir/adapter" # now --force could replace it
refused 1 'is the folder of --adapter; choose another OUT' tune "$tiny" "$dir/adapter" --adapter "$dir/adapter" --force
rm "$dir/adapter/config.json"; always=(tune -d cpu)
nothing_new 2 'adapter-out cannot be used with --adapter' "$tiny" "$dir/new" --adapter "$dir/adapter" --adapter-out "$dir/new2" "${all[@]}"
nothing_new 2 'begins anew: it takes no --adapter' --from-config "$tiny/config.json" "$dir/new" --adapter "$dir/adapter" "${all[@]}"
nothing_new 1 'is a GGUF file; adapters are merged into a model.s folder only' "$models/gguf_blocks/model.gguf" "$dir/new" --adapter "$dir/adapter" --steps 6 --text "$text" -w 48
nothing_new 1 "tiny_gated_deltanet with $dir/adapter: has no matrix with \"other\"" "$tiny" "$dir/new" --adapter "$dir/adapter" "${all[@]}" --targets other
run 0 "$dir/merged" "$dir/later" "${all[@]}"
run 0 "$tiny" "$dir/onward" "${all[@]}" --adapter "$dir/adapter" --stop-at 3 && nothing_left
mkdir "$dir/larger" && cp "$dir/adapter/adapter_model.safetensors" "$dir/larger"
sed 's/"lora_alpha": 8/"lora_alpha": 9/' "$dir/adapter/adapter_config.json" >"$dir/larger/adapter_config.json"
refused 1 "of another model than .*deltanet with $dir/larger$" "$tiny" "$dir/onward" "${all[@]}" --adapter "$dir/larger" --resume -q
refused 1 'of another model than .*deltanet$' "$tiny" "$dir/onward" "${all[@]}" --resume -q
run 0 "$tiny" "$dir/onward" "${all[@]}" --adapter "$dir/adapter" --resume && out_has '^adapter .*adapter, merged$' && nothing_left
same later onward

# Of an embedding PEFT stores A and B transposed, under other names, and its weight too, to which they are added.
run 0 "$tiny" "$dir/mergede" "${steps[@]}" --targets embeddings --adapter-out "$dir/embedded"
for name in A B; do grep -aq "model.embeddings.lora_embedding_$name\"" "$dir/embedded/adapter_model.safetensors" || complain "$last: no lora_embedding_$name"; done
for form in "$dir/mergede" "$tiny --adapter $dir/embedded"; do
  "$program" perplexity -m $form -d cpu -q --json "$text" 2>"$dir/err" | grep '"nll"' >>"$dir/nlle"
done
[ "$(wc -l <"$dir/nlle") $(sort -u "$dir/nlle" | wc -l)" = "2 1" ] && ! grep -qF "$(head -n 1 "$dir/nlle")" "$dir/nll" || complain "embedding: other losses"
mkdir "$dir/blank" && cp "$dir/twice/adapter_config.json" "$dir/blank"
q=base_model.model.model.embeddings blank=(generate -m "$tiny" -d cpu --adapter "$dir/blank" -n 1)
zeros "$dir/blank/adapter_model.safetensors" "{\"$q.lora_embedding_A\":{\"dtype\":\"F32\",\"shape\":[1,259],\"data_offsets\":[0,1036]},\
\"$q.lora_embedding_B\":{\"dtype\":\"F32\",\"shape\":[64,1],\"data_offsets\":[1036,1292]},\
\"$q.base_layer.weight\":{\"dtype\":\"F32\",\"shape\":[259,64],\"data_offsets\":[1292,67596]}}" 67596
always=() && run 0 perplexity -m "$tiny" -d cpu -q --adapter "$dir/blank" "$text" && out_has '5\.55' # ln 259: all are zeros
sed -i 's/lora_embedding_B/lora_embedding_C/' "$dir/blank/adapter_model.safetensors"
refused 1 'lora_embedding_A is without its B, lora_embedding_B' "${blank[@]}"
sed -i 's/lora_embedding_C/lora_embedding_B/; s/\[1,259\]/[259,1]/' "$dir/blank/adapter_model.safetensors"
refused 1 'does not fit tensor model.embeddings.weight' "${blank[@]}" && always=(tune -d cpu)
mkdir "$dir/pissa" && cp "$dir/adapter/adapter_model.safetensors" "$dir/pissa"
sed 's/^ *{/{"init_lora_weights": "pissa",/' "$dir/adapter/adapter_config.json" >"$dir/pissa/adapter_config.json"
always=() && refused 1 'init_lora_weights that change the model' generate -m "$tiny" -d cpu --adapter "$dir/pissa" -n 1 && always=(tune -d cpu)

# ---- eight sentences, each by itself, are learned by heart. After the begin token all eight may follow: ln 8 nats in
# about 24 tokens, so that the loss stays above 0.08.
printf '%s\n' 'The cat sat on the mat.' 'A dog ran to the sea.' 'Rain fell all day long.' 'My house is very old.' \
  'She sang a little song.' 'Birds fly over trees.' 'He reads by the fire.' 'Winter came too early.' >"$dir/eight"
sed 's/.*/{"text": "&"}/' "$dir/eight" >"$dir/eight.jsonl"
learn=(--separate --everything -b 8 --rate 0.01 -w 40)
run 0 "$tiny" "$dir/learned" "${learn[@]}" --text "$dir/eight" --steps 60
out_has '^loss .* 0\.0[89][0-9]* last$'
while read -r sentence; do
  "$program" generate -m "$dir/learned" -d cpu -q --greedy -n 40 --prompt "${sentence:0:2}" >"$dir/out" 2>"$dir/err"
  last="generate" && out_has "^$sentence\$"
done <"$dir/eight"
run 0 "$tiny" "$dir/a" "${learn[@]}" --text "$dir/eight" --steps 2
run 0 "$tiny" "$dir/b" "${learn[@]}" --text "$dir/eight.jsonl" --steps 2
same a b

# ---- four texts of unequal length are one step, in one batch or in four
printf '%s\n' a 'A few words.' "$(head -c 90 "$text" | tr '\n' ' ')" 'A little more than these few words.' >"$dir/unequal"
unequal=(--separate --everything --text "$dir/unequal" --in-order -w 100 --steps 3 --json)
first() { sed -n "/\"$1\": \[/{n;s/[ ,]//g;p}" "$dir/out"; }
run 0 "$tiny" "$dir/u4" "${unequal[@]}" -b 4 && json && one=$(first losses; first norms)
run 0 "$tiny" "$dir/u1" "${unequal[@]}" -b 1 --accumulate 4 && json && four=$(first losses; first norms)
echo $one $four | awk '{ exit !(NF == 4 && $1 > 1 && ($1 - $3)^2 < 1e-10 && ($2 - $4)^2 < 1e-8 * $2^2) }' ||
  complain "$last: loss and norm" $four "and not" $one

# ---- of several end tokens a record gets the first
cp -r "$tiny" "$dir/ends" && sed -i 's/"eos_token_id": 2,/"eos_token_id": [2, 5],/' "$dir/ends/config.json"
printf '{"text": "A few words."}\n' >"$dir/record.jsonl"
record=(--separate --everything --text "$dir/record.jsonl" -w 100 -b 1 --steps 2)
run 0 "$tiny" "$dir/e1" "${record[@]}"
run 0 "$dir/ends" "$dir/e2" "${record[@]}"
same e1 e2

# ---- a held-out text with longer rows than those that are trained on is in the plan
of() { sed -n "/\"$1\": {/{n;s/[^0-9]//g;p}" "$dir/out"; }
head -c 190 "$text" | tr '\n' ' ' >"$dir/long"
run 0 "$tiny" "$dir/held" --separate --text "$dir/eight" --held-out "$dir/long" -w 200 -b 1 --steps 1 --json && json
[ "$(of used)" -gt 0 ] && [ "$(of used)" -le "$(of planned)" ] || complain "$last: $(of used) bytes used of $(of planned)"

# ---- every token is read: a last window that is shorter, and a last step that has fewer rows
three=("$tiny" --separate --text "$dir/three" -w 40 --lora 4)
head -n 3 "$dir/eight" >"$dir/three"
run 0 "${three[@]}" --adapter-out "$dir/three1" && out_has '^steps  *2, 72 tokens$' # each row 24 positions
run 0 "${three[@]}" --adapter-out "$dir/three2" --stop-at 1 && out_has '^steps  *1 of 2, 48 tokens$'
run 0 "${three[@]}" --adapter-out "$dir/three2" --resume
cmp -s "$dir/three1/adapter_model.safetensors" "$dir/three2/adapter_model.safetensors" || complain "$last: other adapters"
run 0 "${three[@]}" --adapter-out "$dir/three3" --accumulate 2 --epochs 3 -b 1 && out_has '^steps  *5, 216 tokens$'
for last_letter in a b; do
  { head -c 84 "$text" && printf $last_letter; } >"$dir/85$last_letter"
  run 0 "$tiny" "$dir/rest$last_letter" --text "$dir/85$last_letter" -w 64 --lora 4 && out_has '^steps  *1, 126 tokens$'
done
cmp -s "$dir/resta/model.safetensors" "$dir/restb/model.safetensors" && complain "$last: the last token is not read"

# ---- of a held-out text, what fills no window counts as much as its predictions
head -c 48 "$text" >"$dir/window" && head -c 78 "$text" | tail -c 30 >"$dir/rest" && cat "$dir/window" "$dir/rest" >"$dir/both"
for held in window rest both; do
  run 0 "$tiny" "$dir/held" --text "$text" --held-out "$dir/$held" -w 48 -b 3 --steps 1 --json --force && json
  sed -n '/"held_out": \[/,/}/{s/.*"nll": //p}' "$dir/out" >>"$dir/nll_held"
done
awk '{ nll[NR] = $1 } END { exit !(NR == 3 && nll[1] > 1 && (76 * nll[3] - 47 * nll[1] - 29 * nll[2])^2 < 1e-6) }' "$dir/nll_held" ||
  complain "held out: $(cat "$dir/nll_held")"

# ---- a teacher
run 0 "$tiny" "$dir/taught" --text "$text" -w 48 --steps 2 --teacher "$tiny" --temperature 3 --in-order
run 0 "$tiny" "$dir/untaught" --text "$text" -w 48 --steps 2 --in-order
cmp -s "$dir/taught/model.safetensors" "$dir/untaught/model.safetensors" && complain "$last: the teacher taught nothing"
cp -r "$tiny" "$dir/other" && sed -i 's/"x": *\([0-9]*\)/"swap": \1/; s/"y": *\([0-9]*\)/"x": \1/; s/"swap": /"y": /' "$dir/other/tokenizer.json"
nothing_new 1 'other: has other tokens than .*, the first of them 1' "$tiny" "$dir/new" --text "$text" -w 48 --steps 2 --teacher "$dir/other"
rm "$dir/other/tokenizer.json" && run 0 "$tiny" "$dir/taught" --text "$text" -w 48 --steps 2 --teacher "$dir/other" --in-order --force

# ---- from nothing: words of groups. S3 by two reflections of a token has begun to be learned; parity, S2, is learned by
# one reflection with eigenvalues down to -1, and not without these.
cat >"$dir/s3.json" <<'END'
{"model_type": "gated_deltaproduct", "hidden_size": 32, "num_hidden_layers": 1, "num_heads": 1, "head_dim": 32, "expand_v": 1.0,
 "use_output_gate": true, "use_forget_gate": false, "num_householder": 2, "allow_neg_eigval": true, "conv_size": 4,
 "intermediate_size": 32, "tie_word_embeddings": false, "vocab_size": 7, "bos_token_id": 0, "eos_token_id": null}
END
words=(--task group --group S3 -w 8 -b 16 --rate 0.01)
run 0 --from-config "$dir/s3.json" "$dir/s3" "${words[@]}" --steps 150
out_has '^loss  *1\.9[0-9]* first, 1\.[12][0-9]* last$'
sed 's/"bos_token_id": 0/"bos_token_id": 1/' "$dir/s3.json" >"$dir/begin.json"
refused 1 'begin.json: bos_token_id must be 0' --from-config "$dir/begin.json" "$dir/begin" "${words[@]}" --steps 1
sed 's/householder": 2/householder": 1/; s/"vocab_size": 7/"vocab_size": 3/' "$dir/s3.json" >"$dir/s2.json"
sed 's/"allow_neg_eigval": true/"allow_neg_eigval": false/' "$dir/s2.json" >"$dir/positive.json"
run 0 --from-config "$dir/s2.json" "$dir/s2" "${words[@]}" --group S2 --steps 150
out_has '^loss  *1\.[01][0-9]* first, 0\.00[0-9]* last$'
run 0 --from-config "$dir/positive.json" "$dir/positive" "${words[@]}" --group S2 --steps 150
out_has '^loss  *1\.[01][0-9]* first, 0\.[1-9][0-9]* last$'
"$program" eval --task group --group S2 --length 8 -m "$dir/s2" -d cpu -q >"$dir/out" 2>"$dir/err"
last=eval && out_has '^s2  *8  *20  *100.00'
run 0 --from-config "$dir/s3.json" "$dir/a3" "${words[@]}" --steps 4
run 0 --from-config "$dir/s3.json" "$dir/b3" "${words[@]}" --steps 4 --stop-at 1
run 0 --from-config "$dir/s3.json" "$dir/b3" "${words[@]}" --steps 4 --resume
same a3 b3
run 0 --from-config "$dir/s3.json" "$dir/c3" "${words[@]}" --steps 4 --seed 1
cmp -s "$dir/a3/model.safetensors" "$dir/c3/model.safetensors" && complain "$last: the seed changes nothing"
always=()
refused 1 'mqar, case 1: the tokenizer has no token for "k[0-9]*"; give the options of this test' eval --task mqar -m "$dir/s3" -d cpu -q --length 20
always=(tune -d cpu)
# Trained further on its task; the words of another task, or other sizes of it, are not its tokens.
run 0 "$dir/s3" "$dir/s3more" "${words[@]}" --everything --steps 50
out_has '^loss  *1\.[0-2][0-9]* first, 1\.[01][0-9]* last$'
nothing_new 1 's3: vocab_size is 7, but --task needs at least 25' "$dir/s3" "$dir/new" "${words[@]}" --group S4 --steps 1
nothing_new 1 's3: has no token "r0", which --task group needs' "$dir/s3" "$dir/new" "${words[@]}" --group D3 --steps 1
sed 's/"vocab_size": 7/"vocab_size": 97/' "$dir/s3.json" >"$dir/recall.json" # 64 keys, 32 values
run 0 --from-config "$dir/recall.json" "$dir/recall0" --task recall -w 20 --steps 1
always=() && run 0 eval --task mqar --length 17 --cases 8 -m "$dir/recall0" -d cpu -q && always=(tune -d cpu)
nothing_new 1 'recall0: token "v0" has id 65, but --task recall needs id 33' "$dir/recall0" "$dir/new" --task recall --keys 32 -w 20 --steps 1
sed 's/"vocab_size": 7/"vocab_size": 21/' "$dir/s3.json" >"$dir/recall.json"
run 0 --from-config "$dir/recall.json" "$dir/recall" --task recall --pairs 3 --keys 10 --values 10 -w 12 --steps 2
"$program" eval --task mqar --pairs 3 --keys 10 --values 10 --length 12 --cases 2 -m "$dir/recall" -d cpu -q >"$dir/out" 2>"$dir/err" ||
  complain "eval does not read recall's tokens"
for family in tiny_hh_delta_static tiny_hh_gated_dynamic tiny_delta_net_swa tiny_gated_deltanet_gva; do
  run 0 --from-config "$models/$family/config.json" "$dir/$family" --tokenizer "$tiny" --text "$text" -w 32 --steps 1
done
# Other families: the new model has the tensors of a checkpoint of the same config, begins at ln 259, is trained and runs.
tensors() { # tensors FOLDER: names and shapes, without the vocabulary's size and without what reads images or predicts a second token
  python3 -c 'import json, struct, sys
file = open(sys.argv[1] + "/model.safetensors", "rb")
for name, t in sorted(json.loads(file.read(struct.unpack("<Q", file.read(8))[0])).items()):
  if name != "__metadata__" and "visual" not in name and not name.startswith("mtp"):
    print(name, t["shape"]["embed" in name or "lm_head" in name:])' "$1"
}
new_model() { # new_model CONFIG NAME
  # an initializer_range outside of text_config is not the text model's
  sed 's/"vocab_size": 6[14]/"vocab_size": 259/; s/"text_config":/"initializer_range": 50, &/' "$1" >"$dir/$2.json"
  run 0 --from-config "$dir/$2.json" "$dir/$2" --tokenizer "$tiny" --text "$text" -w 32 --steps 2
  out_has '^loss  *5\.5[0-9]* first, '
  "$program" generate -m "$dir/$2" -d cpu -q --greedy -n 4 --prompt "The " >"$dir/out" 2>"$dir/err" || complain "$2 does not run"
}
for family in tiny_delta_net_2 ablation_one_filter tiny_mamba2 ablation_transformer ablation_transformer_norm_window \
  released_qwen3_5 released_qwen3_5_bias released_olmo_hybrid; do
  new_model "$models/$family/config.json" $family
  command -v python3 >/dev/null || continue
  tensors "$models/$family" >"$dir/theirs" && tensors "$dir/$family" >"$dir/ours"
  cmp -s "$dir/theirs" "$dir/ours" || complain "$family: other tensors: $(diff "$dir/theirs" "$dir/ours" | head -n 4)"
done
sed 's/"model_type"/"mixers": ["gated_deltanet", "mamba2", "gated_deltanet", "gated_deltanet"], "mamba2": {"head_dim": 16}, &/' \
  "$tiny/config.json" >"$dir/mixers.json"
new_model "$dir/mixers.json" hybrid
grep -aq '"model.layers.1.mixer.A_log"' "$dir/hybrid/model.safetensors" || complain "$last: a layer of Mamba-2 has other names"
echo '{"model_type": "qwen2", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "vocab_size": 259, "initializer_range": 0.03}' >"$dir/q2.json"
new_model "$dir/q2.json" qwen2
grep -aq '"model.layers.1.self_attn.k_proj.bias"' "$dir/qwen2/model.safetensors" || complain "$last: no bias"
[ -z "$(ls -A "$dir/tmp")" ] || complain "$last: left something behind"

# ---- a loss that is not finite: the last state from which it was finite is kept, and is gone on from
burst=(--text "$text" -w 48 --everything --decay 10 --rate 1) # after two or three steps nothing is finite
for end in "--steps 60" "--steps 60 --save-every 1" "--steps 60 --stop-at 3" "--steps 3"; do
  refused 1 'not finite after step [23]: .*; the state after step [012] is in' "$tiny" "$dir/burst" "${burst[@]}" $end -q
  [ -s "$dir/burst.state" ] && [ ! -e "$dir/burst" ] || complain "$last: no state, or a checkpoint"
  run 0 "$tiny" "$dir/burst" "${burst[@]}" ${end%--s*-*} --rate 0.0001 --resume && err_has '^the largest rate was 1 up to step [012] '
  rm -r "$dir/burst"
done
weights=$tiny/model.safetensors header=$(od -An -t u8 -N 8 "$tiny/model.safetensors")
mkdir "$dir/huge" && cp "$tiny"/*.json "$dir/huge" # every weight 1e18: activations overflow
{ head -c $((header + 8)) "$weights"; tail -c +$((header + 9)) "$weights" | tr '\0-\377' '[\135*]'; } >"$dir/huge/model.safetensors"
nothing_new 1 'not finite before the first step: the model.s numbers overflow, or are not finite$' "$dir/huge" "$dir/new" "${steps[@]}" -q

# ---- gradients against a reference's
whole=$top/tests/vectors/grad/whole_tiny_delta_net.safetensors
always=(validate)
run 0 "$models/tiny_delta_net" "$whole" -t 1 && out_has '^all together .*e-0[67] .*1.0e-05$' && out_has '^compared  *5 tensors$'
run 0 "$models/tiny_delta_net" "$whole" --json && json && out_has '"verdict": "pass"'
run 1 "$models/tiny_delta_net" "$whole" --limit 0.000000001 && err_has 'the gradient of .* is off by'
run 0 "$models/tiny_delta_net" "$whole" -d cpu --precision fast && out_has '^device .*, float32$' # no matrix units
rename() { # rename FILE FROM TO: of the same length, in the header
  LC_ALL=C sed "0,/$2/s/$2/$3/" "$whole" >"$dir/$1"
}
rename half.safetensors '"computed": "float64' '"computed": "bf16   '
run 0 "$models/tiny_delta_net" "$dir/half.safetensors" && out_has '^all together .*e-0[67] .*6.0e-03$' && out_has '^model.norm.weight .*3.0e-02$'
rename logits.safetensors grad.model.norm.weight logits__________________
refused 1 'holds gradients, so it must not hold tensor logits_*' "$models/tiny_delta_net" "$dir/logits.safetensors"
run 0 "$models/tiny_delta_net" "$whole" --teacher "$models/tiny_delta_net" && out_has '^all together .*e-0[67] '
run 1 "$models/tiny_delta_net" "$whole" --teacher "$models/tiny_gated_deltanet" && err_has 'the gradient of .* is off by'
cp -r "$models/tiny_delta_net" "$dir/swapped" && sed -i 's/"x": *\([0-9]*\)/"swap": \1/; s/"y": *\([0-9]*\)/"x": \1/; s/"swap": /"y": /' "$dir/swapped/tokenizer.json"
refused 1 'swapped: has other tokens than .*, the first of them 1' "$models/tiny_delta_net" "$whole" --teacher "$dir/swapped"
refused 2 'weight must be above 0' "$models/tiny_delta_net" "$whole" --teacher "$models/tiny_delta_net" --weight 0
refused 2 'weight goes with --teacher' "$models/tiny_delta_net" "$whole" --weight 3
refused 2 'holds no gradients: it takes no --teacher' "$models/tiny_delta_net" "$models/tiny_delta_net/reference.safetensors" --teacher "$tiny"
refused 2 'holds gradients: it takes no --pieces' "$models/tiny_delta_net" "$whole" -p 3
refused 2 'takes fast or float32, not "half"' "$models/tiny_delta_net" "$whole" --precision half
refused 1 'has .* numbers, not' "$models/tiny_delta_product" "$whole"
always=(tune -d cpu)

# ---- what cannot be
: >"$dir/empty"
echo '{"body": "a"}' >"$dir/other.jsonl"
echo '{' >"$dir/broken.jsonl"
nothing_new 2 'give CHECKPOINT and OUT' --text "$text"
nothing_new 2 'give --text FILE' "$tiny" "$dir/new"
nothing_new 2 'give OUT or --adapter-out DIR' "$tiny" --text "$text"
nothing_new 2 'everything has no adapters: it takes no --lora' "$tiny" "$dir/new" --text "$text" --everything --lora 4
nothing_new 2 'give --steps or --epochs, not both' "$tiny" "$dir/new" --text "$text" --steps 3 --epochs 2
nothing_new 2 'schedule takes cosine or constant' "$tiny" "$dir/new" --text "$text" --schedule linear
nothing_new 2 'weight must be above 0' "$tiny" "$dir/new" --text "$text" --teacher "$tiny" --weight 0
nothing_new 2 'temperature must be above 0' "$tiny" "$dir/new" --text "$text" --teacher "$tiny" --temperature 0
nothing_new 2 'clip must be above 0' "$tiny" "$dir/new" --text "$text" --clip 0
nothing_new 2 'beta1 must be above 0' "$tiny" "$dir/new" --text "$text" --beta1 0
nothing_new 2 'temperature goes with --teacher' "$tiny" "$dir/new" --text "$text" --temperature 3
nothing_new 1 'tiny_gated_deltanet: bos_token_id must be 0' "$tiny" "$dir/new" --task group --steps 3
nothing_new 2 'task needs --steps' --from-config "$dir/s3.json" "$dir/new" --task group
nothing_new 2 'there is no group "S9"' --from-config "$dir/s3.json" "$dir/new" --task group --group S9 --steps 3
nothing_new 2 'texts need --tokenizer' --from-config "$dir/s3.json" "$dir/new" --text "$text"
nothing_new 1 'vocab_size is 7, but --task needs at least 25' --from-config "$dir/s3.json" "$dir/new" --task group --group S4 --steps 3
nothing_new 1 's3.json: the tokenizer has ids up to 258, but the model.s vocabulary has 7 tokens$' --from-config "$dir/s3.json" "$dir/new" --tokenizer "$tiny" --text "$text"
for range in 1e25 0 '"a"'; do
  sed "s/\"model_type\"/\"initializer_range\": $range, &/" "$dir/s3.json" >"$dir/range.json"
  nothing_new 1 'range.json: initializer_range .*\(from 0 to 1000\|above 0\|number\)' --from-config "$dir/range.json" "$dir/new" "${words[@]}" --steps 1
done
nothing_new 2 'warm-up 10 is longer than the training of 2 steps$' "$tiny" "$dir/new" --text "$text" -w 48 --steps 2 --warm-up 10
nothing_new 1 'every matrix with "q_proj" in its name is to be trained itself too' "$tiny" "$dir/new" --text "$text" -w 48 --targets q_proj --whole q_proj
always=()
refused 2 'adapter may be given only once$' generate -m "$tiny" -d cpu --adapter "$dir/adapter" --adapter "$dir/embedded" -n 1
mkdir "$dir/rankless" && cp "$dir/adapter/adapter_model.safetensors" "$dir/rankless"
sed 's/"r": 4/"r": 0/' "$dir/adapter/adapter_config.json" >"$dir/rankless/adapter_config.json"
refused 1 'rankless/adapter_config.json: r is 0 and must be from 1' generate -m "$tiny" -d cpu --adapter "$dir/rankless" -n 1
always=(tune -d cpu)
nothing_new 1 'layer 0 has a mixture of experts' --from-config "$models/released_qwen3_5_moe/config.json" "$dir/new" --tokenizer "$tiny" --text "$text"
nothing_new 1 'text: too short: it has one row of 1076 tokens, and a step reads 2 rows; use -b 1$' "$tiny" "$dir/new" --text "$text" -w 5000
nothing_new 1 'text: too short: it has 11 rows of at most 100 tokens, and a step reads 64 rows; use a smaller --batch or --accumulate$' \
  "$tiny" "$dir/new" --text "$text" -w 100 -b 32 --accumulate 2
nothing_new 2 'standard input can be read only once$' "$tiny" "$dir/new" --text - --held-out -
last="an empty standard input" code=0
"$program" "${always[@]}" "$tiny" "$dir/new" --text - </dev/null 2>"$dir/err" || code=$?
[ $code = 1 ] && err_has '^deltaic tune: standard input: too short: there is nothing to predict$'
zeros "$dir/ids.safetensors" '{"tokens":{"dtype":"I32","shape":[12],"data_offsets":[0,48]}}' 48
ids=(--text "$dir/ids.safetensors" --text "$dir/ids.safetensors" -w 8 -b 64)
nothing_new 1 'it has 3 rows of at most 8 tokens' "$tiny" "$dir/new" "${ids[@]}"
nothing_new 1 'it has 4 rows of at most 8 tokens' "$tiny" "$dir/new" "${ids[@]}" --separate # 8 and 4 tokens of each file
run 0 "$tiny" "$dir/i32" --text "$dir/ids.safetensors" -w 6 --steps 1
sed 's/"I32","shape":\[12\]/"U16","shape":[24]/' "$dir/ids.safetensors" >"$dir/u16.safetensors" # as many zeros and more
run 0 "$tiny" "$dir/u16" --text "$dir/u16.safetensors" -w 6 --steps 1 && same i32 u16
sed s/I32/F32/ "$dir/ids.safetensors" >"$dir/f32.safetensors"
nothing_new 1 "tensor tokens is F32, not integers" "$tiny" "$dir/new" --text "$dir/f32.safetensors"
printf '\3\1' | dd of="$dir/ids.safetensors" bs=1 seek=$(($(stat -c %s "$dir/ids.safetensors") - 48 + 4 * 7)) conv=notrunc status=none
wrong='ids.safetensors: token 7 is 259, but the vocabulary of .* has the tokens 0 to 258'
nothing_new 1 "$wrong" "$tiny" "$dir/new" --text "$dir/ids.safetensors" -w 4
nothing_new 1 "$wrong" "$tiny" "$dir/new" --text "$text" -w 48 --held-out "$dir/ids.safetensors"
printf a >"$dir/letter"
nothing_new 1 'letter: too short: there is nothing to predict' "$tiny" "$dir/new" --text "$text" --held-out "$dir/letter"
nothing_new 1 'empty: too short' "$tiny" "$dir/new" --text "$dir/empty"
nothing_new 1 'line 1: has no text "text"' "$tiny" "$dir/new" --text "$dir/other.jsonl"
nothing_new 1 'line 1: is not JSON' "$tiny" "$dir/new" --text "$dir/broken.jsonl"
nothing_new 1 'has no tensor "tokens"' "$tiny" "$dir/new" --text "$tiny/model.safetensors"
nothing_new 1 'missing: no such file or folder' "$tiny" "$dir/new" --text "$dir/missing"
nothing_new 1 'has no matrix with "other" in its name' "$tiny" "$dir/new" --text "$text" -w 48 --targets other
nothing_new 1 'is a GGUF file' "$models/gguf_blocks/model.gguf" "$dir/new" --text "$text" -w 48
nothing_new 1 'is the checkpoint that is read' "$tiny" "$tiny" --text "$text" --force
nothing_new 1 'merged: is the folder of --teacher; choose another output' "$tiny" "$dir/merged" --text "$text" --teacher "$dir/merged/" --force
nothing_new 1 'nothing to resume' "$tiny" "$dir/new" --text "$text" --resume
nothing_new 1 'missing: no such file or folder' "$tiny" "$dir/missing/new" --text "$text" -w 48

# ---- Ctrl-C while kernels are compiled
find_vulkan
for device in ${vulkan%%[!0-9]*}; do
  : >"$dir/err"
  set -m
  "$program" tune "$tiny" "$dir/compiled" "${steps[@]}" -d "$device" --cache-dir "" >"$dir/out" 2>"$dir/err" &
  set +m
  for _ in $(seq 300); do grep -q '^memory of a step' "$dir/err" && break || sleep 0.05; done
  sleep 0.4
  code=0 last="Ctrl-C while kernels are compiled" && kill -INT $! && { wait $! || code=$?; }
  [ $code = 130 ] && err_has 'stopped by Ctrl-C' || complain "$last: exit code $code"
  [ ! -e "$dir/compiled" ] || complain "$last: a checkpoint"
done

echo "$checks runs, $failures failures"
[ $failures = 0 ]
