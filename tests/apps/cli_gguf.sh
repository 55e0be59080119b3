#!/bin/bash
# cli_gguf.sh PROGRAM TOP: a GGUF file in place of a model's folder, in every command: its tokenizer, end tokens,
# template and sampling, files in parts, and what cannot be done with it.
set -u
. "$(dirname "$0")/cli_tools.sh"
vectors=$top/tests/vectors

# ---- a small model whose tokens are those of the template, white space and letters
tokens='"<|endoftext|>","<|im_start|>","<|im_end|>","<think>","</think>","Ġ","Ċ","AB"' types=3,3,3,4,4,1,1,1
for c in {a..z} {A..Z} . , '?' !; do tokens+=",\"$c\"" types+=,1; done
rewrite() { # rewrite NAME ARGS...
  python3 "$top/tests/apps/rewrite_gguf.py" "$vectors/models/gguf_qwen3_5/model.gguf" "$dir/$1" "${@:2}" \
    tokenizer.ggml.tokens="[$tokens]" tokenizer.ggml.token_type="[$types]"
}
template=tokenizer.chat_template=@$vectors/chat/templates/qwen3.5-small.jinja
rewrite whole.gguf "$template" general.sampling.top_k=5
rewrite m.gguf "$template" parts=3
whole=$dir/whole.gguf first=$dir/m-00001-of-00003.gguf second=$dir/m-00002-of-00003.gguf
printf 'the house was old. who was there?\n' >"$dir/text"

# ---- what it is
run 0 info "$whole" && out_has '^architecture  qwen35$' && out_has '^formats       83 % f32, 17 % bf16$'
out_has '; ends with 2 or 0$' && out_has '^tokenizer     byte-level BPE, 64 entries$' && err_empty
run 0 info "$whole" --json && json && out_has '"weights_bytes": [1-9]'
[ "$(tr -d ' \n' <"$dir/out" | grep -c '"end_tokens":\[2,0\]')" = 1 ] || complain "$last: other end tokens"

# ---- the same text from one file and from three
run 0 generate "$whole" -p 'the house' -n 20 -g -d cpu -q && mv "$dir/out" "$dir/text_whole"
run 0 generate "$first" -p 'the house' -n 20 -g -d cpu -q && cmp -s "$dir/out" "$dir/text_whole" ||
  complain "$last: another text than from one file"
run 0 generate "$whole" -p 'the house' -n 2 -d cpu && err_has ', temperature 1, top-k 5$'

# ---- end tokens: the likeliest token, named by each of the keys
likeliest=$("$program" generate "$whole" -p 'the house' -n 1 -g -d cpu -q --json 2>/dev/null |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["tokens"][-1])')
for key in eos eot eom; do
  rewrite ended.gguf tokenizer.ggml.${key}_token_id="$likeliest"
  run 0 generate "$dir/ended.gguf" -p 'the house' -n 20 -g -d cpu -q --json && out_has '"end": "eos"'
done
rewrite ended.gguf tokenizer.ggml.eot_token_id=64
refused 1 'ended.gguf: tokenizer.ggml.eot_token_id is 64' generate "$dir/ended.gguf" -p a

# ---- a conversation
talk() { # talk CODE ARGS...
  local code=$1 got=0
  shift
  last="chat $*" checks=$((checks + 1))
  printf 'who was there?\nand now?\n' | "$program" chat "$@" -d cpu >"$dir/out" 2>"$dir/err" || got=$?
  [ $got = "$code" ] || complain "$last: exit code $got, not $code"
}
talk 0 "$whole" -n 8 -g --json
err_has 'qwen35, template qwen3.5-small$'
[ "$(wc -l <"$dir/out")" = 2 ] || complain "$last: not two answers"
cp "$dir/out" "$dir/answers"
talk 0 "$first" -n 8 -g --json
plain() { sed 's/"seconds":[0-9.e+-]*//g' "$1"; }
[ "$(plain "$dir/out")" = "$(plain "$dir/answers")" ] || complain "$last: other answers than from one file"
talk 1 "$vectors/models/gguf_qwen3_5/model.gguf" && err_has 'model.gguf: its chat template is none of the published'
talk 0 "$vectors/models/gguf_qwen3_5/model.gguf" --template chatml -n 4 -q

# ---- the other commands
run 0 perplexity "$whole" "$dir/text" -d cpu && out_has '^mean NLL'
run 0 eval "$first" --task mqar --pairs 2 -n 2 -d cpu -q && out_has 'm-00001-of-00003.gguf'
run 0 bench "$whole" -d cpu --prompt-tokens 16 -n 4 -r 1 && out_has '^decode'
run 0 validate "$vectors/models/gguf_qwen3_5/model.gguf" "$vectors/models/released_qwen3_5/reference.safetensors" -d cpu
out_has '12 of 12 as in the reference'
run 0 rank "$whole" --text "$dir/text" -d cpu -q && out_has '^whole.gguf'

# ---- a mixture of experts: one token reads its own experts, many read all
mixture=$vectors/models/gguf_qwen3_5_moe/model.gguf
run 0 info "$mixture" -d cpu && out_has '^experts  *5 of width 12, 2 a token: 57.5 k active parameters$'
run 0 info "$whole" -d cpu && ! grep -q '^experts' "$dir/out" || complain "$last: experts"
run 0 bench "$mixture" -d cpu --kernels --prompt-tokens 64 -n 2 -r 1 && out_has '^experts: 5 a layer, 2 a token, '
out_has '^  *1  *2.0  .*  40%  ' && out_has '^  *64  *5.0  .*  100%  '
run 0 bench "$mixture" -d cpu --kernels --prompt-tokens 64 -n 2 -r 1 --json && json
python3 - "$dir/out" <<'E' || complain "$last: other experts"
import json, sys
rows = json.load(open(sys.argv[1]))["experts"]
every = rows[0]["all_bytes"]
assert [r["tokens"] for r in rows] == [1, 2, 4, 16, 64] and rows[0]["chosen"] == 2 and rows[-1]["chosen"] == 5
assert every >= 3 * 5 * 3 * 12 * 40 * 2 and rows[-1]["bytes"] == every and rows[0]["bytes"] == int(every * 2 / 5)
assert all(r["seconds"] > 0 and 2 <= r["chosen"] <= min(5, 2 * r["tokens"]) for r in rows)
E
run 0 bench "$mixture" -d cpu --kernels --prompt-tokens 64 --batch 16 -n 2 -r 1 && out_has '^  *16  *5.0  .*  100%  '
! grep -q '^  *64  *5.0 ' "$dir/out" || complain "$last: slices are not tokens at once"
run 0 bench "$whole" -d cpu --kernels --prompt-tokens 16 -n 2 -r 1 --json && out_has '"experts": \[\]'

# ---- what is refused
refused 1 'whole.gguf: is a GGUF file; give the model.s folder instead' prune "$whole" "$dir/pruned" --cut 0.5 --text "$dir/text"
[ ! -e "$dir/pruned" ] || complain "$last: there is a checkpoint"
mkdir "$dir/alone" && cp "$first" "$dir/alone"
head -c 3000 "$whole" >"$dir/keys.gguf" && head -c -1000 "$whole" >"$dir/cut.gguf" && cp "$dir/text" "$dir/text.gguf"
for command in info bench "generate -p a" "chat --template chatml" "perplexity $dir/text" "eval -T mqar" "rank --text $dir/text"; do
  read -r name options <<<"$command"
  [ "$name" != perplexity ] || { files=$options options=; }
  refusal() { refused 1 "$2" $name "$1" $options ${files-}; }
  refusal "$dir/nowhere.gguf" 'nowhere.gguf: no such file or folder'
  refusal "$second" 'm-00002-of-00003.gguf: is .*part.*; give the first'
  refusal "$dir/alone/${first##*/}" 'm-00001-of-00003.gguf: part 2 of 3 is missing from the folder'
  refusal "$dir/keys.gguf" 'keys.gguf: ends inside .*: the file is cut short or damaged'
  refusal "$dir/cut.gguf" 'cut.gguf: tensor .*: the file is cut short or damaged'
  refusal "$dir/text.gguf" "text.gguf: is no GGUF file; give the model's folder instead"
  unset files
done

echo "cli_gguf: $checks runs, $failures failures"
exit $((failures > 0))
