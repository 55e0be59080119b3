#!/bin/bash
# cli.sh PROGRAM TOP: the program as scripts meet it: exit codes, sentences, streams, JSON, interruption.
set -u
. "$(dirname "$0")/cli_tools.sh"
tiny=$top/tests/vectors/models/tiny_gated_deltanet
growing=$top/tests/vectors/models/tiny_delta_net_global
tiny() { run "$1" generate -m "$tiny" -d cpu -q --no-echo "${@:2}"; }

# ---- help
run 0 help && out_has '^exit codes:' && err_empty
run 0 help exit-codes && out_has '^  130  '
run 0 version && out_has '^deltaic [0-9]'
for command in generate chat perplexity eval prune info devices bench validate rank demo serve; do
  run 0 help $command && out_has '^examples:' && err_empty
  cp "$dir/out" "$dir/help"
  run 0 $command --help
  cmp -s "$dir/out" "$dir/help" || complain "$last: not what 'help $command' says"
done

# ---- the command line
refused 2 "no command"
refused 2 'did you mean generate' genrate
refused 2 'did you mean --tokens' generate --tokns 3
refused 2 'no option -Z' generate -Z
refused 2 'not "12x"' generate -n 12x
refused 2 'not "-3"' generate -n -3
refused 2 'not "99999999999999999999999"' generate -n 99999999999999999999999
refused 2 'not ""' generate -n ''
refused 2 'from 0 to 1' generate --top-p 1.5
refused 2 'not "nan"' generate --temperature nan
refused 2 'needs a value' generate --seed
refused 2 'takes no value' generate --greedy=yes
refused 2 'after --prompt' generate "$tiny" 'Once upon a time'
refused 2 'given twice' generate --prompt a --file b
refused 2 'commas between' bench --prompt-tokens 1,,2
refused 2 'tokens would be left out' perplexity x --window 8 --stride 9
refused 2 'no FILE' perplexity
refused 2 'no FILE with a text after .*, which is a folder' perplexity "$tiny"
refused 2 'unexpected argument' devices there
refused 2 'an argument is empty' info ''
(cd "$dir" && for command in generate bench info 'perplexity /dev/null' 'eval -T parity' 'rank -f /dev/null'; do
  refused 2 'no checkpoint' $command
done; exit $failures)
failures=$((failures + $?))

# ---- malformed input
refused 1 'nowhere' generate -m "$dir/nowhere" -d cpu
refused 1 'nowhere' info "$dir/nowhere"
refused 1 'perplexity: a?\[31mb?: no such file' perplexity "$tiny" $'a\e[31mb\n' -d cpu # control characters are none
refused 1 '"": no such file or folder' generate -m '' -d cpu
mkdir "$dir/foreign" && cp "$tiny"/{config.json,model.safetensors} "$dir/foreign" && cp "$top/models/novelist/tokenizer.json" "$dir/foreign"
refused 1 'the tokenizer has ids up to 4095, but the model.s vocabulary has 259 tokens' generate "$dir/foreign" -d cpu
refused 1 '/dev/zero: is longer than 1 GiB' generate "$tiny" -f /dev/zero -d cpu
refused 1 '/dev/zero:1: the line is longer than 16 MiB' generate "$tiny" --prompts /dev/zero -d cpu
refused 1 '"": no such file or folder' generate "$tiny" -d cpu --state-out ''
refused 1 'no such file or folder' perplexity "$dir/nowhere" -m "$tiny" -d cpu
refused 1 "json: is no GGUF file; give the model's folder instead: .*/tiny_" info "$tiny/config.json"
refused 1 "LICENSE: is no GGUF file; give the model's folder instead$" generate "$top/LICENSE" -p a
mkdir "$dir/bare" && cp "$tiny/config.json" "$tiny/model.safetensors" "$dir/bare"
refused 1 'bare/tokenizer.json: no such' generate "$dir/bare//" -d cpu -p a
refused 1 'UTF-8' generate -m "$tiny" -d cpu -p $'caf\xe9'
refused 3 'no device "warp drive"' generate -m "$tiny" -d 'warp drive'
refused 3 'no device "63"' generate -m "$tiny" -d 63
broken() { # broken FILE: a copy of the tiny checkpoint whose FILE is standard input
  rm -rf "$dir/broken" && cp -r "$tiny" "$dir/broken" && chmod -R u+w "$dir/broken" && cat >"$dir/broken/$1"
}
echo '{"model_type": ' | broken config.json && refused 1 'config.json' info "$dir/broken"
echo '{"model_type": "mystery"}' | broken config.json && refused 1 'mystery' generate -m "$dir/broken" -d cpu
head -c 1000 "$tiny/model.safetensors" | broken model.safetensors && refused 1 'safetensors' generate -m "$dir/broken" -d cpu
echo '[]' | broken tokenizer.json && refused 1 'tokenizer.json' generate -m "$dir/broken" -d cpu
head -c 100 /dev/urandom >"$dir/noise" && refused 1 'noise' generate -m "$tiny" -d cpu -q --state-in "$dir/noise"

# ---- generate
tiny 0 -n 30 --seed 7 && err_empty && cp "$dir/out" "$dir/seven"
tiny 0 -n 30 --seed 7 && cmp -s "$dir/out" "$dir/seven" || complain "$last: the same seed gave another text"
tiny 0 -n 30 --seed 8 && ! cmp -s "$dir/out" "$dir/seven" || complain "$last: another seed gave the same text"
tiny 0 -n 30 --seed 7 --json && json && out_has '"seed": 7' && out_has '"tokens_per_second": [0-9]'
tiny 0 -n 12 -g && cp "$dir/out" "$dir/greedy"
tiny 0 -n 12 --temperature 1e-45 --repetition-penalty 1 && cmp -s "$dir/out" "$dir/greedy" ||
  complain "$last: hardly any temperature is not the likeliest token"
run 0 generate -m "$tiny" -d cpu -p 'The house' -n 8 && out_has '^The house' && err_has 'decode .* tokens/s' && err_has 'seed'
printf 'The house\n' >"$dir/prompt"
run 0 generate "$tiny" -d cpu --file "$dir/prompt" -n 8 --greedy && cp "$dir/out" "$dir/from_file"
"$program" generate "$tiny" -d cpu - -n 8 -g -q <"$dir/prompt" >"$dir/out" 2>"$dir/err"
cmp -s "$dir/out" "$dir/from_file" || complain "standard input is not continued like a file"
tiny 0 -n 40 -g -p 'The house' && cp "$dir/out" "$dir/whole"
tiny 0 -n 25 -g -p 'The house' --state-out "$dir/state" && cp "$dir/out" "$dir/joined"
tiny 0 -n 15 -g --state-in "$dir/state" && cat "$dir/out" >>"$dir/joined"
cmp -s <(tr -d '\n' <"$dir/joined") <(tr -d '\n' <"$dir/whole") || complain "a saved state does not continue the text"
printf 'The h\xffouse\n' >"$dir/prompt"
refused 1 'prompt: byte 6 of the text, 0xff, is not UTF-8' generate "$tiny" -d cpu --file "$dir/prompt"
refused 1 'prompt: byte 6 of the text' perplexity "$tiny" -d cpu "$dir/prompt"
refused 1 'The house: no such .*; a text to continue goes after --prompt' generate 'The house'
refused 1 'neither model.safetensors nor' generate "$dir" -p a
refused 2 'greedy takes the likeliest token: it has no --top-k' generate "$tiny" -g --top-k 3
# An error while decoding loses nothing of the text.
full() { run 1 generate -m "$growing" -d cpu -p 'The house' -n 50 --context 16 -q "$@" && err_has 'context of 16'; }
full --state-out "$dir/full"
[ "$(tail -c 1 "$dir/out" | wc -l)" = 1 ] || complain "$last: no newline at the end"
run 0 generate -m "$growing" -d cpu -n 3 -q --state-in "$dir/full"
full --json && json && out_has '"end": "error"' && out_has '"position": 16'
run 0 generate -m "$growing" -d cpu -p 'The house' -n 5 -q

# ---- many texts: in the file's order, each as it is alone, whatever shares the device with it
printf 'The house\n\nThe sea\nIt was a dark and stormy night, and the wind blew\nThe house\nA\n' >"$dir/prompts"
for sequences in 1 2 8; do
  tiny 0 --prompts "$dir/prompts" -n 9 --seed 4 --sequences $sequences && err_empty && cp "$dir/out" "$dir/many$sequences"
  cmp -s "$dir/many1" "$dir/many$sequences" || complain "$last: other texts than with one at once"
done
[ "$(wc -l <"$dir/many8")" = 5 ] || complain "$last: not a line for each prompt"
seed=4
grep . "$dir/prompts" | while read -r prompt; do
  tiny 0 -p "$prompt" -n 9 --seed $seed --json
  python3 - "$dir/out" "$dir/many8" $seed <<'END' || complain "$last: not what --prompts gave"
import json, sys
alone, line = json.load(open(sys.argv[1])), json.loads(open(sys.argv[2]).readlines()[int(sys.argv[3]) - 4])
sys.exit(any(alone[k] != line[k] for k in ("prompt", "text", "tokens", "seed", "end")))
END
  seed=$((seed + 1))
done >"$dir/wrong"
[ ! -s "$dir/wrong" ] || complain "$(cat "$dir/wrong")"
python3 -c 'import json, sys
for line in open(sys.argv[1]): print(json.dumps({"prompt": line[:-1]}) if line > "\n" else "")' "$dir/prompts" >"$dir/objects"
"$program" generate "$tiny" -d cpu -q --prompts - -n 9 --seed 4 <"$dir/objects" | cmp -s - "$dir/many8" || complain "objects give other texts"
run 0 generate -m "$growing" -d cpu -q --prompts "$dir/prompts" -n 9 && [ "$(wc -l <"$dir/out")" = 5 ] || complain "$last: a text is missing"
printf 'The house\nThe sea\nA\n' >"$dir/few"
tiny 0 --prompts "$dir/few" -n 1 --seed 9223372036854775807 && out_has '"seed":9223372036854775807,' && out_has '"seed":0,'
printf '{"prompt": "a"}\n{"promt": "b"}\n' >"$dir/objects" && refused 1 'objects:2: no "prompt" whose value is a string' generate "$tiny" --prompts "$dir/objects"
printf 'a\nb\xff\n' >"$dir/objects" && refused 1 'objects:2: byte 2 of the line' generate "$tiny" --prompts "$dir/objects"
printf '\n' >"$dir/objects" && refused 1 'no prompt in it' generate "$tiny" --prompts "$dir/objects"
# What ends the work loses no text that has begun; a prompt that cannot fit is found before.
run 1 generate -m "$growing" -d cpu -q --prompts "$dir/few" -n 50 --context 16 --sequences 2 && err_has 'context of 16'
[ "$(grep -c '"tokens":\[[0-9].*"end":"error","stop":null}$' "$dir/out")" = 2 ] || complain "$last: not the two texts that had begun"
refused 1 "prompts:4: the prompt's 50 tokens do not fit --context 16" generate -m "$growing" -d cpu --prompts "$dir/prompts" --context 16
tiny 0 --prompts "$dir/prompts" -n 1 --context 16 # has no cache
run 0 generate -m "$tiny" -d cpu --prompts "$dir/few" -n 0 && err_has 'texts   3 of 3' && ! grep -q 'prefill\|decode' "$dir/err" ||
  complain "$last: speaks of tokens"
refused 2 'cannot be combined' generate "$tiny" --prompts "$dir/prompts" --prompt a
refused 2 'goes with --prompts' generate "$tiny" --sequences 2

"$program" generate -m "$tiny" -d cpu -n 5 >/dev/full 2>"$dir/err"
[ $? = 1 ] && grep -q 'standard output' "$dir/err" || complain "a full disk goes unnoticed"
for command in version "generate -m $tiny -d cpu -n 5" "info $tiny --json"; do
  "$program" $command >&- 2>"$dir/err" </dev/null
  [ $? = 1 ] && grep -q 'standard output' "$dir/err" || complain "$command: a closed standard output goes unnoticed"
done
# Pipes and devices are written into, and are there afterwards.
mkfifo "$dir/pipe"
timeout 30 cat "$dir/pipe" >"$dir/copy" &
tiny 0 -n 25 -g -p 'The house' --state-out "$dir/pipe" && wait $!
[ -p "$dir/pipe" ] && cmp -s "$dir/copy" "$dir/state" || complain "$last: not the state that a file gets"
if mknod "$dir/device" c 1 7 2>"$dir/err"; then
  run 1 generate -m "$tiny" -d cpu -q -n 1 --state-out "$dir/device" && err_has "device: "
  [ -c "$dir/device" ] || complain "$last: the device is gone"
fi

# ---- ends of text and the sampling that a model recommends
tiny 0 -n 12 -g --json && cp "$dir/out" "$dir/twelve"
seventh=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["tokens"][6])' "$dir/twelve")
echo "{\"eos_token_id\": [0, $seventh], \"do_sample\": false}" | broken generation_config.json
ending() { run "$1" generate -m "$dir/broken" -d cpu --no-echo "${@:2}"; }
ending 0 -n 12 --json && out_has '"end": "eos"' && err_has 'the likeliest token each time'
python3 - "$dir/out" "$dir/twelve" <<'EOF' || complain "$last: does not end at the second end token"
import json, sys
a, b = (json.load(open(p))["tokens"] for p in sys.argv[1:])
sys.exit(a != b[:b.index(b[6]) + 1])
EOF
cp "$dir/out" "$dir/ended"
printf 'The house\n' >"$dir/prompts"
ending 0 -n 12 --ignore-eos --json && out_has '"end": "tokens"'
ending 0 -n 3 --temperature 0.5 && err_has 'seed [0-9]*, temperature 0.5$'
run 0 info "$dir/broken" && out_has "ends with 0 or $seventh$"
run 0 info "$dir/broken" --json && json && out_has '"end_tokens": \['
echo '{"do_sample": true, "temperature": 0.25, "top_k": 9, "eos_token_id": 2}' | broken generation_config.json
ending 0 -n 3 && err_has 'temperature 0.25, top-k 9$'
ending 0 -n 3 --temperature 0 && err_has 'the likeliest token each time'
echo '{"do_sample": true, "top_p": 7}' | broken generation_config.json && refused 1 'generation_config.json: top_p is 7' \
  generate -m "$dir/broken" -d cpu

# ---- stop strings
novelist() { run "$1" generate -m "$top/models/novelist" -d cpu -q -g --no-echo "${@:2}"; }
novelist 0 -n 30 && whole=$(cat "$dir/out")
novelist 0 -n 30 --stop 'e middl' && [ "$(cat "$dir/out")" = "${whole%%e middl*}" ] || complain "$last: not the text before it"
novelist 0 -n 30 --stop nowhere --stop ' mid' --stop middle --json && out_has '"stop": " mid"' && out_has '"end": "stop"'
novelist 0 -n 30 --stop 'middle of nowhere' && [ "$(cat "$dir/out")" = "$whole" ] || complain "$last: loses held text"
printf 'The house\nThe sea\n' >"$dir/prompts"
novelist 0 -n 30 --stop ',' --prompts "$dir/prompts" && out_has '"end":"stop","stop":","}$'
grep -q '"text":"[^"]*,' "$dir/out" && complain "$last: the stop string is written"
refused 2 'up to 16 texts, none empty, not ""' generate --stop ''
refused 1 'stop string 1 is not UTF-8' generate -m "$tiny" -d cpu --stop $'caf\xe9'

# ---- streams that end, and Ctrl-C
"$program" generate -m "$tiny" -d cpu -n 10000000 --ignore-eos 2>"$dir/err" | head -c 20 >"$dir/out"
[ "${PIPESTATUS[0]}" = 141 ] || complain "a reader that leaves does not end the program"
grep -q 'deltaic generate:' "$dir/err" && complain "a reader that leaves makes the program complain"
# interrupted WAIT ARGS...: starts the program, runs WAIT, presses Ctrl-C; the exit code must be 130.
interrupted() {
  local wait=$1 pid
  shift
  last="deltaic $*, interrupted"
  checks=$((checks + 1))
  set -m # else a background job ignores SIGINT
  "$program" "$@" >"$dir/out" 2>"$dir/err" </dev/null &
  pid=$!
  set +m
  $wait
  kill -INT $pid
  wait $pid
  [ $? = 130 ] || complain "$last: the exit code is not 130"
}
until_text() { for _ in $(seq 300); do [ -s "$dir/out" ] && return || sleep 0.1; done; }
rm -f "$dir/out"
interrupted until_text generate -m "$tiny" -d cpu -n 10000000 --ignore-eos --state-out "$dir/stopped"
err_has 'ended .*Ctrl-C'
tiny 0 --state-in "$dir/stopped" -n 3
printf 'The house\n{}\nThe sea\n' >"$dir/prompts"
interrupted 'sleep 2' generate -m "$tiny" -d cpu -n 10000000 --ignore-eos --sequences 2 --prompts "$dir/prompts"
[ "$(grep -c '"end":"interrupt","stop":null}$' "$dir/out")" = 2 ] || complain "Ctrl-C: not the two texts that had begun"
for _ in $(seq 500); do cat "$top/LICENSE"; done >"$dir/long"
interrupted 'sleep 4' perplexity -m "$top/models/novelist" -d cpu --batch 16 "$dir/long"
out_has '^stopped ' && err_has 'stopped by Ctrl-C'
interrupted 'sleep 3' bench -m "$top/models/novelist" -d cpu --prompt-tokens 8,1000000 --decode 0
err_has 'stopped by Ctrl-C'

# ---- perplexity
ppl() { run 0 perplexity "$top/LICENSE" -m "$tiny" -d cpu "$@"; }
ppl && out_has '^perplexity  *[0-9]' && err_empty
run 0 perplexity "$tiny" "$top/LICENSE" -d cpu --windows 1 && out_has '^predictions  511'
ppl --windows 2 --window 64 --json && json && out_has '"predictions": 126' && out_has '"complete": true'
ppl --windows 2 --window 64 --bos --json && out_has '"predictions": 128'
ppl --windows 2 --window 64 --stride 16 --json && out_has '"predictions": 79'
refused 1 'nowhere' perplexity "$tiny" "$dir/nowhere" "$top/LICENSE" -d cpu # before the first one is measured
refused 1 'none/x.png: no such file or folder' perplexity "$tiny" "$top/LICENSE" -d cpu --plot "$dir/none/x.png"
refused 1 'models: is a folder, not a file' perplexity "$tiny" "$top/LICENSE" -d cpu --by-position "$top/models"
refused 1 'few/state: part of its path is a file, not a folder' generate "$tiny" -d cpu --state-out "$dir/few/state"
ppl --window 0 --json && out_has '"windows": 1'
# Records of JSONL with begin and end tokens, and the same tokens in a file of ids (a byte's id is 3 more).
printf '{"text": "abc"}\n{"text": "xyz"}\n' >"$dir/two.jsonl"
tokens='{"tokens":{"dtype":"U8","shape":[10],"data_offsets":[0,10]}}'
{ printf "\\x$(printf %02x ${#tokens})\\0\\0\\0\\0\\0\\0\\0%s" "$tokens"; printf '\1\144\145\146\2\1\173\174\175\2'; } >"$dir/two.safetensors"
run 0 perplexity "$tiny" "$dir/two.jsonl" -d cpu --json && json && out_has '"predictions": 9' && nll=$(grep '"nll"' "$dir/out")
run 0 perplexity "$tiny" "$dir/two.safetensors" -d cpu --json && out_has "$nll" && out_has '"byte_perplexity": null'
run 0 perplexity "$tiny" "$dir/two.jsonl" -d cpu && out_has 'per word, ' # of 2 words

# ---- info, devices, bench
run 0 info "$tiny" && out_has '^architecture  *gated_deltanet' && err_empty
run 0 info -m "$growing" --context 100 --json && json && out_has '"grows": true'
run 0 info -m "$growing" --sequences 8 && out_has 'state, of 8 texts'
run 0 devices && out_has 'CPU' && err_empty
run 0 devices --brief && out_has '^\*'
run 0 devices --json && json && out_has '"best": -\{0,1\}[0-9]'
run 1 devices --forget -d cpu && err_has 'nothing that must be timed'
run 0 bench -m "$tiny" -d cpu --prompt-tokens 8,32 --decode 4 --repeat 2 --kernels && out_has '^decode ' && out_has '^kernels of'
out_has '^products [0-9]' && out_has '^  kernel .* floor ms  *ratio '
out_has '^  matmul_[a-z0-9]* \( *[0-9.][0-9.]*\)\{4\}  *[0-9.]*%' && out_has '^  all \( *[0-9.][0-9.]*\)\{4\} '
run 0 bench -m "$tiny" -d cpu --prompt-tokens 8 --decode 0 --repeat 1 --json && json && out_has '"phase": "prefill"'
out_has '"products_per_second": null' && out_has '"floor": null' # measured where --kernels asks for them
run 0 bench -m "$tiny" -d cpu --prompt-tokens 8 --decode 0 --repeat 1 --json --kernels && json
out_has '"products_per_second": [0-9]' && out_has '"floor": [0-9]'
run 0 bench --operators -d cpu --repeat 2 --rule chunk --json && json && out_has '"error_output": [0-9]' && out_has '"outputs": 48'
out_has '"seconds_recurrent": null' && out_has '"error_output": null' # of the CPU's recurrent kernel, which is the reference
out_has '"chunks": true' && out_has '"chunks": false'
# The script that times fla beside these rows, given a torch without a card.
if command -v python3 >/dev/null; then
  mkdir -p "$dir/torch/nn" && touch "$dir/torch/nn/__init__.py" "$dir/torch/nn/functional.py"
  printf '%s\n' '__version__ = "0"' 'class cuda: get_device_name, empty_cache = staticmethod(str), staticmethod(int)' \
    >"$dir/torch/__init__.py"
  cp "$dir/out" "$dir/rows.json"
  last=bench_fla.py
  PYTHONPATH=$dir python3 "$top/tests/ops/bench_fla.py" "$dir/rows.json" >"$dir/out" 2>"$dir/err" || complain "$last: it stopped"
  out_has '^one token .* 16 x 16 .*[0-9]\(  *-\)\{7\}$'
fi
refused 2 'fast or float32' bench --operators --precision nonsense -d cpu
refused 2 'without a checkpoint' bench --operators -m "$tiny"
refused 2 'operators has shapes of its own: it takes no --decode' bench --operators -n 3
refused 2 'rule takes auto, recurrent or chunk' bench --operators --rule nonsense
for rule in auto=tokens chunk=chunks recurrent=tokens; do # the CPU takes keys of 16 token by token
  run 0 bench --operators --only 'gated delta' -d cpu --repeat 2 --rule ${rule%=*} && out_has "^gated delta .* 2  *${rule#*=} "
done
run 0 bench --operators --only 'one token' -d cpu --repeat 2 && out_has '^one token '
[ "$(grep -c ' x ' "$dir/out")" = 2 ] || complain "$last: not the table's head and one row"
run 0 bench --operators --only 'product, 1 x' -d cpu --repeat 2 && out_has '^matrix product  *1 x 48 x 64'
refused 2 'no row' bench --operators --only nonsense -d cpu
refused 2 'chooses rows' bench --only 'one token' -m "$tiny"
run 0 bench -m "$tiny" -d cpu --sequences 3 --prompt-tokens 8 --decode 4 --repeat 1 && out_has '^texts  *3 at once'

# ---- every Vulkan device that can be used
find_vulkan
for device in $vulkan; do
  run 0 generate -m "$tiny" -d "$device" -q --no-echo -n 12 --seed 7 && cp "$dir/out" "$dir/seven"
  run 0 generate -m "$tiny" -d "$device" -q --no-echo -n 12 --seed 7 --cache-dir "$dir/seven/cache" && err_empty
  cmp -s "$dir/out" "$dir/seven" || complain "$last: the same seed gave another text"
  run 0 perplexity "$top/LICENSE" -m "$tiny" -d "$device" --windows 2 --window 64
  run 0 bench -m "$tiny" -d "$device" --prompt-tokens 8 --decode 4 --repeat 1 --seconds 0.5 --json --cache-dir "$dir/seven/cache" && json &&
    err_has 'warning: .*Not a directory' # a file where the folder should be
  run 0 bench -m "$tiny" -d "$device" --sequences 3 --prompt-tokens 8 --decode 4 --repeat 1 --seconds 0.5 --json && json &&
    out_has '"sequences": 3'
done

echo "cli: $checks runs, $failures failures, Vulkan devices: ${vulkan:-none}"
[ $failures = 0 ]
