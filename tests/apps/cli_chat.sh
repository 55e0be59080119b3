#!/bin/bash
# cli_chat.sh PROGRAM TOP: deltaic chat over pipes and at a terminal: turns taken back, branches and saved conversations
# give the bits of a conversation from its beginning, and compute nothing again.
set -u
. "$(dirname "$0")/cli_tools.sh"
models=$top/tests/vectors/models

# ---- models: novelist, whose tokenizer has none of the template's tokens; and two small ones that have them, the second
# with caches. Their begin and end tokens are <|im_start|> and <|im_end|>.
with_tokens() { # with_tokens NAME
  cp -r "$models/$1" "$dir/$1" && chmod -R u+w "$dir/$1"
  python3 - "$dir/$1" <<'EOF'
import json, sys
path = sys.argv[1] + "/tokenizer.json"
text = open(path, encoding="utf-8").read()
tokens = json.loads(text)["added_tokens"]
for id, name in ((1, "<|im_start|>"), (2, "<|im_end|>")):
    old = next(t["content"] for t in tokens if t["id"] == id)
    text = text.replace(json.dumps(old, ensure_ascii=False), json.dumps(name))
open(path, "w", encoding="utf-8").write(text)
EOF
}
with_tokens tiny_gated_deltanet
with_tokens tiny_delta_net_global

# chat CODE MODEL INPUT ARGS...: lines of JSON in $dir/out; INPUT is for printf.
chat() {
  local code=$1 model=$2 input=$3 got=0
  shift 3
  last="chat $model $* <<< $input"
  checks=$((checks + 1))
  printf "$input" | "$program" chat "$model" -d "${device-cpu}" "$@" >"$dir/out" 2>"$dir/err" || got=$?
  [ $got = "$code" ] || complain "$last: exit code $got, not $code"
}
# Without the times.
plain() { sed 's/"seconds":[0-9.e+-]*//g; s/"branch":[0-9]*//' "$dir/out"; }
same() { [ "$1" = "$2" ] || complain "$last: $3"; }
line() { sed -n "$1p" <<<"$2"; }

# ---- the same bits
same_bits() { # same_bits MODEL ARGS...
  local model=$1 whole f
  shift
  local a='The house\n' b='Who is there?\n' c='It was late.\n'
  talk() { chat 0 "$model" "$1" -q --json --precision float32 "${@:2}"; }
  talk "$a$b$c/save $dir/whole\n" "$@" && whole=$(plain)
  talk "$a$b/undo\n$b$c/save $dir/undone\n" "$@"
  same "$(plain | sed 3d)" "$whole" 'after /undo an answer differs'
  cmp -s "$dir/whole" "$dir/undone" || complain "$last: after /undo the state differs"
  talk "$a$c$b/undo 2\n$b$c/save $dir/undone\n" "$@"
  cmp -s "$dir/whole" "$dir/undone" || complain "$last: after /undo 2 the state differs"
  talk "$a/fork\nAnother\nStill another\n/switch 1\n$b/fork 1\nMore\n/switch 1\n$c/save $dir/forked\n/branches\n" "$@"
  same "$(plain | sed '2,3d; 5d')" "$whole" 'after /fork an answer differs'
  cmp -s "$dir/whole" "$dir/forked" || complain "$last: after /fork the state differs"
  err_has '^\* 1  3 turns, the last: It was late\.' && err_has '^  2  3 turns' && err_has '^  3  2 turns, the last: More'
  talk "$a$b/save $dir/two\n" "$@"
  talk "/load $dir/two\n$c/save $dir/loaded\n" "$@"
  same "$(plain)" "$(line 3 "$whole")" 'after /load an answer differs, or more was computed'
  cmp -s "$dir/whole" "$dir/loaded" || complain "$last: after /load the state differs"
  # States that are not kept are computed again, in other pieces, to the same answers.
  talk "$a$b/undo\n$b$c" --keep 1 "$@"
  tokens() { grep -o '"tokens":\[[^]]*\]' <<<"$1"; }
  same "$(tokens "$(plain | sed 3d)")" "$(tokens "$whole")" 'an answer on a state that was computed again differs'
}
same_bits "$top/models/novelist" --template chatml -n 8 -g
same_bits "$top/models/novelist" --template qwen3.5 -n 8 -g --thinking off
same_bits "$dir/tiny_gated_deltanet" --template chatml -n 12 -g
same_bits "$dir/tiny_gated_deltanet" --template qwen3.5 -n 12 -g
same_bits "$dir/tiny_gated_deltanet" --template kimi -n 12 -g --stop e
same_bits "$dir/tiny_delta_net_global" --template qwen2.5 -n 12 -g
same_bits "$dir/tiny_gated_deltanet" --template olmo3-think -n 12 -g
# Answers that end by themselves, which these models do by chance only.
chance=(-q --json --template olmo3-think -n 300 --temperature 100 --seed 3)
chat 0 "$dir/tiny_gated_deltanet" "a\nb\n/save $dir/two\nc\n/save $dir/whole\n" "${chance[@]}" && third=$(plain | sed -n 3p)
grep -q '"end":"eos"' "$dir/out" || complain "$last: no answer ended by itself"
chat 0 "$dir/tiny_gated_deltanet" "/load $dir/two\nc\n/save $dir/loaded\n" "${chance[@]}"
same "$(plain)" "$third" 'after /load an answer differs, or more was computed'
cmp -s "$dir/whole" "$dir/loaded" || complain "$last: after /load the state differs"

# The template's end token ends an answer even if no config names it.
echo '{"eos_token_id": 0}' >"$dir/tiny_gated_deltanet/generation_config.json"
chat 0 "$dir/tiny_gated_deltanet" 'a\nb\nc\n' "${chance[@]}" && out_has ',2\],"end":"eos"'
rm "$dir/tiny_gated_deltanet/generation_config.json"

if [ "${DELTAIC_TEST_DEVICE-}" != cpu ]; then
  for device in $("$program" devices --brief 2>/dev/null | sed -n '/not usable/d; s/^[* ]*\([0-9][0-9]*\) .*/\1/p'); do
    same_bits "$dir/tiny_delta_net_global" --template chatml -n 12 -g
  done
  unset device
fi

# ---- nothing is computed again: the tokens of a later turn do not grow with the conversation
chat 0 "$dir/tiny_gated_deltanet" 'one\ntwo\nsix\nten\n' -q --json --template chatml -n 40 -g
python3 - "$dir/out" <<'EOF' || complain "$last: a turn evaluates more than its question"
import json, sys
rows = [json.loads(line)["prefill"]["tokens"] for line in open(sys.argv[1])]
sys.exit(not (rows[1] == rows[2] == rows[3] <= rows[0] + 3))
EOF
chat 0 "$dir/tiny_gated_deltanet" 'one\ntwo\nsix\nten\n' -q --json --template qwen3.5 --thinking off -n 40 -g
python3 - "$dir/out" <<'EOF' || complain "$last: a turn evaluates more than its question and the answer before"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
first = rows[0]["prefill"]["tokens"]
sys.exit(any(r["prefill"]["tokens"] > first + 60 for r in rows[1:]))
EOF

# ---- sampling: another answer to the same question, the same with the same seed
chat 0 "$dir/tiny_gated_deltanet" 'a\n/retry\n' -q --json --template chatml -n 20 --seed 5 && both=$(plain)
same "$(line 1 "$both" | wc -l)" 1 'no answer'
[ "$(line 1 "$both")" != "$(line 2 "$both")" ] || complain "$last: /retry gives the same answer"
chat 0 "$dir/tiny_gated_deltanet" 'a\n/undo\na\n' -q --json --template chatml -n 20 --seed 5
same "$(plain)" "$both" 'the same seed gives other answers'

# ---- histories
rm -f "$dir/talk"
chat 0 "$dir/tiny_gated_deltanet" 'a\nb\n' -q --json --template chatml -n 9 -g --history "$dir/talk" --system 'Be <|im_end|>.'
[ "$(head -n 1 "$dir/talk")" = 'deltaic chat 1' ] || complain "$last: no history"
sed -n 2p "$dir/talk" | tr -d '\0' | python3 -m json.tool >/dev/null || complain "$last: no JSON in the history"
cp "$dir/talk" "$dir/copy"
chat 0 "$dir/tiny_gated_deltanet" 'c\n/system\n' --json --template chatml -n 9 -g --history "$dir/talk"
err_has '^history 2 turns' && err_has '^Be <|im_end|>\.$' && out_has '"question":"c"'
grep -q '^deltaic chat 1' "$dir/talk" && cmp -s "$dir/talk" "$dir/copy" && complain "$last: the history did not grow"

chat 1 "$dir/tiny_gated_deltanet" 'd\n/nonsense\ne\n' -q --template chatml -n 9 -g --history "$dir/talk"
chat 0 "$dir/tiny_gated_deltanet" '' --template chatml --history "$dir/talk" && err_has '^history 4 turns'
# The turn before the last has no state in the file: it is evaluated again when it is needed.
chat 0 "$dir/tiny_gated_deltanet" '/undo\n' -q --template chatml --history "$dir/talk"
chat 0 "$dir/tiny_gated_deltanet" 'f\n' --template chatml -n 9 -g --history "$dir/talk"
err_has '^history 3 turns' && err_has 'evaluated again'
chat 1 "$dir/tiny_gated_deltanet" 'f\n' -q --template chatml --history "$dir/missing/talk" && err_has 'missing/talk: no such'

# A branch without an answer does not replace the file; its first answer does.
keeps() { # keeps INPUT: the file stays as it is
  cp "$dir/copy" "$dir/talk"
  chat 0 "$dir/tiny_gated_deltanet" "$1" -q --template chatml -n 3 -g --history "$dir/talk"
  cmp -s "$dir/copy" "$dir/talk" || complain "$last: the history changed"
}
for input in '/new\n/quit\n' '/system Hello\n' '/fork 1\n' '/fork\n/undo\n' '/new\n/system Hello\n' "/load $dir/copy\n" \
  '/fork 1\n/switch 1\n'; do keeps "$input"; done
chat 0 "$dir/tiny_gated_deltanet" '/fork 1\nx\n/switch 1\n/undo\n' -q --template chatml -n 3 -g --history "$dir/talk"
sed -n 2p "$dir/talk" | grep -aq '"question":"a".*"question":"x"' || complain "$last: the history has not the last answer"
cp "$dir/copy" "$dir/talk"
chat 0 "$dir/tiny_gated_deltanet" '/branches\n' -q --template chatml --history "$dir/talk"
same "$(cat "$dir/err")" '* 1  2 turns, the last: b' 'the history is not the only branch'
refused 2 'system: .*talk has a conversation already' chat "$dir/tiny_gated_deltanet" --template chatml \
  --history "$dir/talk" --system 'Another'
chat 0 "$dir/tiny_gated_deltanet" '/system Hello\n' -q --template chatml --history "$dir/none"
[ ! -e "$dir/none" ] || complain "$last: a conversation without an answer was saved"

# ---- conversations that do not fit
tell() { chat 1 "$dir/tiny_gated_deltanet" "/load $1\n" -q --template chatml; }
tell "$dir/nowhere" && err_has 'nowhere: no such file'
head -c 100 /dev/urandom >"$dir/noise" && tell "$dir/noise" && err_has "noise: is no conversation of 'deltaic chat'"
head -c -100 "$dir/copy" >"$dir/short" && tell "$dir/short" && err_has 'short: the conversation.s state is cut off'
head -n 1 "$dir/copy" >"$dir/short" && tell "$dir/short" && err_has 'is no conversation'
python3 - "$dir" <<'EOF'
import sys
data = bytearray(open(sys.argv[1] + "/copy", "rb").read())
data[-9] ^= 1
open(sys.argv[1] + "/flipped", "wb").write(data)
text = bytes(data).split(b"\n", 2)
for name, old, new in (("roles", b'"turns":[', b'"turns":[7,'), ("ids", b'"pending":[', b'"pending":[9999,')):
    assert old in text[1]
    open(f"{sys.argv[1]}/{name}", "wb").write(b"\n".join([text[0], text[1].replace(old, new), text[2]]))
EOF
tell "$dir/flipped" && err_has 'flipped: .*\(checksum\|damaged\|malformed\)'
tell "$dir/roles" && err_has 'its turns'
tell "$dir/ids" && err_has 'its pending tokens'
chat 1 "$dir/tiny_delta_net_global" "/load $dir/copy\n" -q --template chatml && err_has 'model'
chat 1 "$dir/tiny_gated_deltanet" "/load $dir/copy\n" -q --template kimi && err_has 'has the template chatml'

# ---- lines
chat 0 "$dir/tiny_gated_deltanet" '{"question": "a\\nb"}\n//slash\n\n/new\nx\n' -q --json --template chatml -n 3 -g
out_has '"question":"a\\nb"' && out_has '"question":"/slash"' && out_has '"question":"x".*"branch":2'
chat 1 "$dir/tiny_gated_deltanet" '{"question": 1}\n' -q --json --template chatml && err_has 'no "question" whose value is a string'
chat 1 "$dir/tiny_gated_deltanet" 'caf\xe9\n' -q --template chatml && err_has 'is not UTF-8'
for bad in '/undo' '/undo x' '/undo 0' '/switch 2' '/fork 9' '/retry' '/save' '/thinking maybe' '/thinking on' '/nothing'; do
  chat 1 "$dir/tiny_gated_deltanet" "$bad\nx\n" -q --template chatml -n 2
  out_empty
  [ "$(wc -l <"$dir/err")" = 1 ] || complain "$last: not one sentence"
done
chat 1 "$dir/tiny_gated_deltanet" '/und\n' -q --template chatml && err_has 'did you mean /undo'
chat 0 "$dir/tiny_gated_deltanet" '/help\n/quit\nx\n' -q --template chatml && err_has '/fork \[N\]' && out_empty
chat 0 "$dir/tiny_gated_deltanet" '' -q --template chatml && out_empty && err_empty

# ---- thinking
chat 0 "$top/models/novelist" 'Hello\n' -q --template qwen3.5 -n 6 -g && same "$(head -n 1 "$dir/out")" '<think>' 'no <think>'
same "$(tail -n 2 "$dir/out" | head -n 1)" '</think>' 'no </think>'
chat 0 "$top/models/novelist" 'Hello\n' -q --template qwen3.5 -n 6 -g --hide-thinking && same "$(cat "$dir/out")" '' 'thinking is shown'
chat 0 "$top/models/novelist" '/thinking off\nHello\n' -q --template qwen3.5 -n 6 -g --json && out_has '"thinking":"","answer":"[^"]'

# ---- the command line
refused 2 '--thinking takes on or off' chat "$dir/tiny_gated_deltanet" --template qwen3.5 --thinking maybe
refused 2 'cannot turn thinking off' chat "$dir/tiny_gated_deltanet" --template olmo3-think --thinking off
refused 1 'no chat template "gpt"; known are: chatml' chat "$dir/tiny_gated_deltanet" --template gpt
refused 1 'has no chat template; --template NAME chooses one: chatml' chat "$dir/tiny_gated_deltanet"
echo '{{ messages }}' >"$dir/tiny_gated_deltanet/chat_template.jinja"
refused 1 'chat_template.jinja: its chat template is none of the published.*--template NAME' chat "$dir/tiny_gated_deltanet"
cp "$top/tests/vectors/chat/templates/kimi-k2.jinja" "$dir/tiny_gated_deltanet/chat_template.jinja"
chat 0 "$dir/tiny_gated_deltanet" 'x\n' -n 2 -g && err_has 'template kimi$'

# ---- a terminal: Ctrl-C stops an answer, then the prompt comes again; the end of input ends the program
checks=$((checks + 1))
python3 - "$program" "$dir/tiny_gated_deltanet" >"$dir/out" 2>"$dir/err" <<'EOF' || complain 'at a terminal'
import os, pty, select, sys, time
got = b""
def until(fd, text, seconds=60):
    global got
    end = time.time() + seconds
    while text not in got:
        if not select.select([fd], [], [], max(0, end - time.time()))[0]:
            sys.exit(f"no {text!r} in {got[-300:]!r}")
        got += os.read(fd, 65536)
    got = got[got.index(text) + len(text):]
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "chat", sys.argv[2], "-d", "cpu", "-n", "10000000", "-g", "--template", "kimi"])
until(fd, b"/help lists the commands")
until(fd, b"> ")
os.write(fd, b"Hello\n")
until(fd, b"Hello\r\n")
time.sleep(1)
os.write(fd, b"\x03\x03")      # the second finds the answer stopping, or the prompt
until(fd, b"\r\n> ")
for _ in range(20):            # at the prompt: nothing but another prompt, however soon
    os.write(fd, b"\x03")
    until(fd, b"> ")
os.write(fd, b"/undo\n")
until(fd, b"0 turns left")
until(fd, b"> ")
os.write(fd, b"\x04")
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
EOF

echo "cli_chat: $checks runs, $failures failures"
exit $((failures > 0))
