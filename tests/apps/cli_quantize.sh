#!/bin/bash
# cli_quantize.sh PROGRAM TOP: deltaic quantize: what it writes is read by this program, by a reader of its own
# (check_gguf.py), and by llama.cpp where there is one (LLAMA_COMPLETION, or llama-completion); what it refuses.
set -u
. "$(dirname "$0")/cli_tools.sh"
novelist=$top/models/novelist templates=$top/tests/vectors/chat/templates
llama=${LLAMA_COMPLETION-$(command -v llama-completion)}
[ "$llama" ] || echo "cli_quantize: no llama.cpp here, so its reading of the files is not tested"

# ---- families that llama.cpp knows
for kind in qwen3_5 qwen3_5_moe qwen3_next; do
  folder=$dir/$kind template=$templates/qwen3.5-small.jinja
  python3 "$top/tests/apps/make_qwen_folder.py" "$folder" $kind "$template" || complain "make_qwen_folder.py $kind"
  run 0 generate "$folder" -p 'the house of' -n 12 -g -d cpu -q --precision float32 && mv "$dir/out" "$dir/text"
  for type in f32 bf16 q4_k_m; do
    run 0 quantize "$folder" "$dir/$kind.gguf" -T $type -f -q && out_has "^written .*, qwen3" && err_empty
    written=$type
    [ $type != q4_k_m ] || written=q4_k
    python3 "$top/tests/apps/check_gguf.py" "$dir/$kind.gguf" "$folder" $written >"$dir/out" 2>"$dir/err" ||
      complain "check_gguf.py $kind $type"
    run 0 generate "$dir/$kind.gguf" -p 'the house of' -n 12 -g -d cpu -q --precision float32
    case $type in f32 | bf16) cmp -s "$dir/out" "$dir/text" || complain "$last: another text than the folder's" ;; esac
    [ "$llama" ] && [ $type = f32 ] || continue
    "$llama" -m "$dir/$kind.gguf" -p 'the house of' -n 12 --temp 0 --repeat-penalty 1 -no-cnv --no-warmup -ctk f32 -ctv f32 -t 2 \
      >"$dir/out" 2>"$dir/err"
    [ "$(head -1 "$dir/out")" = "$(cat "$dir/text")" ] || complain "llama.cpp, $kind: another text"
  done
done
for type in f16 q8_0 q6_k q5_k_m q5_0 q4_k q4_0 iq4_nl iq4_xs; do
  run 0 quantize "$dir/qwen3_5" "$dir/t.gguf" -T $type -f -q
  python3 "$top/tests/apps/check_gguf.py" "$dir/t.gguf" "$dir/qwen3_5" ${type%_m} >"$dir/out" 2>"$dir/err" ||
    complain "check_gguf.py $type"
done
printf 'who was there?\n' | "$program" chat "$dir/qwen3_5.gguf" -d cpu -n 4 -g >"$dir/out" 2>"$dir/err" ||
  complain "chat with a written file"
err_has 'template qwen3.5-small$'
run 0 info "$dir/qwen3_5.gguf" --json && json
[ "$(tr -d ' \n' <"$dir/out" | grep -c '"end_tokens":\[265,263\]')" = 1 ] || complain "$last: other end tokens"
cp -r "$dir/qwen3_5" "$dir/ends" &&
  sed -i 's/"eos_token_id": \[[^]]*\]/"eos_token_id": [265, 263, 7, 8, 9]/' "$dir/ends/generation_config.json"
run 0 quantize "$dir/ends" "$dir/ends.gguf" -T f32 -q
run 0 info "$dir/ends.gguf" --json && json
[ "$(tr -d ' \n' <"$dir/out" | grep -c '"end_tokens":\[265,263,7,8,9\]')" = 1 ] || complain "$last: other end tokens"

# Of four layers, q4_k_m gives more bits to the last two: of attn_qkv too.
run 0 quantize "$dir/qwen3_5" "$dir/mixture.gguf" -T q4_k_m --dry-run --tensors
[ "$(grep -cE 'blk.(0|1).attn_qkv.weight +q4_k|blk.2.attn_qkv.weight +q6_k' "$dir/out")" = 3 ] || complain "$last: other types"

run 0 quantize "$dir/qwen3_5" "$dir/capitals.gguf" -T Q4_K_M --dry-run --tensors
sed -i s/capitals.gguf/mixture.gguf/ "$dir/out" && cp "$dir/out" "$dir/capitals"
run 0 quantize "$dir/qwen3_5" "$dir/mixture.gguf" -T q4_k_m --dry-run --tensors
cmp -s "$dir/out" "$dir/capitals" || complain "$last: another table than for a type in capitals"

# The extra head is not written, and the report says so.
out_has '^left out: 1 tensor that the model does not need, such as mtp.fc.weight$'
run 0 quantize "$dir/qwen3_5" "$dir/mixture.gguf" --dry-run --json && json && out_has '"left_out": *1,'
run 0 quantize "$dir/qwen3_5.gguf" "$dir/mixture.gguf" --dry-run && ! grep -q 'left out' "$dir/out" || complain "$last: left out"

# A tokenizer that splits text in a way without a name is in the file as it is.
cp -r "$dir/qwen3_5" "$dir/other" && sed -i 's/\\\\p{N}|/\\\\p{N}{1,3}|/' "$dir/other/tokenizer.json"
run 0 quantize "$dir/other" "$dir/other.gguf" -T f32 -q
grep -aq 'tokenizer.huggingface.json' "$dir/other.gguf" && grep -aq 'p{N}{1,3}' "$dir/other.gguf" || complain "$last: no tokenizer.json"
run 0 generate "$dir/other" -p 'the 1234' -n 6 -g -d cpu -q --json --precision float32 && cp "$dir/out" "$dir/tokens"
run 0 generate "$dir/other.gguf" -p 'the 1234' -n 6 -g -d cpu -q --json --precision float32
python3 - "$dir/tokens" "$dir/out" <<'E' || complain "$last: other tokens than the folder's"
import json, sys
a, b = (json.load(open(p))["tokens"] for p in sys.argv[1:])
assert a == b
E
! grep -aq 'tokenizer.huggingface.json' "$dir/qwen3_5.gguf" || complain "a tokenizer.json that is not needed"

# ---- of a GGUF file, in parts too
run 0 quantize "$dir/qwen3_5.gguf" "$dir/again.gguf" -T q8_0 -q && out_has ', qwen35,'
rewrite=$top/tests/apps/rewrite_gguf.py
python3 "$rewrite" "$dir/qwen3_5.gguf" "$dir/m.gguf" parts=3
run 0 quantize "$dir/m-00001-of-00003.gguf" "$dir/whole.gguf" -T q8_0 -q
cmp -s "$dir/whole.gguf" "$dir/again.gguf" || complain "$last: another file than from one part"
refused 1 'm-00001-of-00003.gguf: is the model that is to be read' quantize "$dir/m-00001-of-00003.gguf" "$dir/m-00001-of-00003.gguf" -f
refused 1 'm-00002-of-00003.gguf: is the model that is to be read' quantize "$dir/m-00001-of-00003.gguf" "$dir/m-00002-of-00003.gguf" -f

# ---- a family of its own, pruned
run 0 prune "$novelist" "$dir/half" --method l1 --cut 0.5 -q
run 0 quantize "$dir/half" "$dir/half.gguf" -T f16 -q && out_has ', gated_deltanet (for Deltaic only),'
run 0 generate "$dir/half" -p 'The old house' -n 20 -g -d cpu -q && mv "$dir/out" "$dir/text"
run 0 generate "$dir/half.gguf" -p 'The old house' -n 20 -g -d cpu -q
cmp -s "$dir/out" "$dir/text" || complain "$last: another text than the pruned folder's"
run 0 info "$dir/half.gguf" && out_has 'for queries and keys of 32, '

# ---- what is printed
head -c 600 "$top/docs/tour.md" >"$dir/words"
run 0 quantize "$novelist" "$dir/n.gguf" --compare "$dir/words" -w 128 -d cpu -q
out_has '^type  *tensors  *weights  *size  *bits per weight$' && out_has '^q4_k  *44 ' && out_has '^all  *110 '
out_has '^before  *16.06  ' && out_has '^after  *5.10  ' && out_has '% in perplexity, from '
run 0 perplexity "$novelist" "$dir/n.gguf" "$dir/words" -w 128 -d cpu -q --json && cp "$dir/out" "$dir/scored"
run 0 quantize "$novelist" "$dir/n.gguf" -f --compare "$dir/words" -w 128 -d cpu --json && json
python3 - "$dir/scored" "$dir/out" <<'E' || complain "$last: not the perplexities that 'deltaic perplexity' prints"
import json, sys
scored, both = (json.load(open(p)) for p in sys.argv[1:])
before, after = both["compare"]["before"], both["compare"]["after"]
for one, own in zip(scored["results"], (before, after), strict=True):
    assert abs(own["nll"] - one["nll"]) < 1e-6 and own["predictions"] == one["predictions"]
assert abs(before["nll"] - after["nll"]) > 1e-4 and both["deltaic_only"] and both["fallbacks"] == []
assert both["bytes"] == sum(t["bytes"] for t in both["types"]) and 5 < both["bits_per_weight"] < 5.2
E
run 0 quantize "$top/tests/vectors/models/tiny_delta_net" "$dir/odd.gguf" --dry-run --tensors
out_has '^would be written ' && out_has '^q5_0 instead of q4_k: ' && out_has '^model.layers.0.attn.A_log\|^model.embeddings.weight'
[ ! -e "$dir/odd.gguf" ] || complain "$last: there is a file"
run 0 quantize --help && out_has 'iq4_xs' && out_has '^ *.*deltaic quantize models/'

# ---- what is refused
refused 2 'there is no type "q4km"; did you mean q4_k' quantize "$novelist" "$dir/x.gguf" -T q4km
refused 2 'which MODEL, and which OUT.gguf' quantize "$novelist"
refused 2 'a model is given twice' quantize -m "$novelist" "$novelist" "$dir/x.gguf"
refused 2 'it must be a file' quantize "$novelist" "$dir/x.gguf" --compare -
refused 2 'quantize: --windows needs --compare' quantize "$novelist" "$dir/x.gguf" --windows 3
refused 2 'quantize: --window needs --compare' quantize "$novelist" "$dir/x.gguf" -w 64
refused 2 'writes nothing that could be compared' quantize "$novelist" "$dir/x.gguf" --compare "$dir/words" --dry-run
refused 1 'n.gguf: is there already (--force replaces it)' quantize "$novelist" "$dir/n.gguf"
refused 1 'n.gguf: is the model that is to be read' quantize "$dir/n.gguf" "$dir/n.gguf" -f
refused 1 'model.safetensors: is the model that is to be read' quantize "$novelist" "$novelist/model.safetensors" -f
refused 1 'nowhere: no such file or folder' quantize "$dir/nowhere" "$dir/x.gguf"
refused 1 'nowhere' quantize "$novelist" "$dir/nowhere/x.gguf"
refused 1 'nowhere: no such file or folder' quantize "$novelist" "$dir/x.gguf" --compare "$dir/nowhere"
refused 1 '/dev/full: cannot be written: No space left on device' quantize "$novelist" /dev/full
[ ! -e "$dir/x.gguf" ] || complain "a refused command has written a file"

# ---- Ctrl-C leaves nothing, and a comparison ends at any time
checks=$((checks + 1))
python3 - "$program" "$novelist" "$dir" <<'E' >"$dir/out" 2>"$dir/err" || complain 'quantize --compare, interrupted'
import os, signal, subprocess, sys, time
program, model, folder = sys.argv[1:]
open(folder + "/long", "w").write("The old house was dark. " * 40000)
start = time.time()
subprocess.run([program, "quantize", "--help"], capture_output=True, check=True)
begin = time.time() - start  # until the program runs
for wait in (0.03, 0.1, 0.3, 1):
    p = subprocess.Popen([program, "quantize", model, folder + "/x.gguf", "-d", "cpu", "-q", "-c", folder + "/long"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(begin + wait)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=100)
    assert p.returncode == 130 and not out and err == "deltaic quantize: stopped by Ctrl-C\n", (wait, p.returncode, err)
    assert not os.path.exists(folder + "/x.gguf")
E
mkdir "$dir/stop"
last='quantize, interrupted' checks=$((checks + 1))
set -m # else a background job ignores SIGINT
"$program" quantize "$novelist" "$dir/stop/x.gguf" -T iq4_xs -t 1 >"$dir/out" 2>"$dir/err" </dev/null &
pid=$!
set +m
until [ "$(ls "$dir/stop")" ] || ! kill -0 $pid 2>/dev/null; do :; done
kill -INT $pid
wait $pid
[ $? = 130 ] || complain "$last: the exit code is not 130"
[ ! "$(ls "$dir/stop")" ] || complain "$last: there is a file"

echo "cli_quantize: $checks runs, $failures failures"
exit $((failures > 0))
