#!/bin/bash
# cli_eval.sh PROGRAM TOP: `deltaic eval` as scripts meet it: tables, JSON, logs and kills, malformed files.
set -u
. "$(dirname "$0")/cli_tools.sh"
command -v python3 >/dev/null || { echo "cli_eval.sh: needs python3"; exit 1; }
LC_ALL=C.UTF-8
model=$top/models/novelist vectors=$top/tests/vectors/eval
eval_cpu() { run "$1" eval "$model" -d cpu -q "${@:2}"; }
err_has() { grep -q -F -e "$1" "$dir/err" || complain "$last: no '$1' on standard error"; }
# holds EXPRESSION: Python's, of the JSON on standard output, j.
holds() {
  checks=$((checks + 1))
  python3 -c 'import json, math, sys
j = json.load(open(sys.argv[1]))
sys.exit(not eval(sys.argv[2]))' "$dir/out" "$1" 2>>"$dir/err" || complain "$last: not $1"
}
# refused SENTENCE LINE: an empty line and this one stops with one sentence that names both.
refused() {
  printf '\n%s\n' "$2" >"$dir/bad.jsonl"
  eval_cpu 1 --task "$dir/bad.jsonl"
  err_has "bad.jsonl:2: $1"
  [ "$(wc -l <"$dir/err")" = 1 ] || complain "$last: not one sentence"
  [ ! -s "$dir/out" ] || complain "$last: standard output is not empty"
}

# ---- help and the command line
run 0 help eval && out_has '^examples:' && out_has 'lambada'
eval_cpu 2 && err_has 'no --task'
eval_cpu 2 --task lambada && err_has '--data FILE'
eval_cpu 1 --task "$dir/nowhere.jsonl" && err_has 'nowhere.jsonl: no such file or folder'
run 1 eval "$dir/nowhere" -d cpu --task "$vectors/cases.jsonl"
eval_cpu 2 --task cost --log "$dir/log" && err_has 'takes no --log'
eval_cpu 2 --task cost --data x && err_has 'takes no --data'
eval_cpu 2 --task helaswag --data x && err_has 'did you mean hellaswag?'
eval_cpu 2 --task nonsense && err_has 'no file of this name'
eval_cpu 2 --task "$vectors/cases.jsonl" --data "$vectors/lambada.jsonl" && err_has 'takes no --data, which is for data sets, niah-2, niah-3'
# An option that the task does not have.
lambada=(lambada --data "$vectors/lambada.jsonl")
eval_cpu 2 --task parity --pairs 4 && err_has '--task parity takes no --pairs, which is for mqar'
eval_cpu 2 --task mqar --group=S3 && err_has '--task mqar takes no --group, which is for group'
eval_cpu 2 --task modular -s 1 --new 9 && err_has '--task modular takes no --new, which is for files of cases, niah-1, niah-2, niah-3'
eval_cpu 2 --task "${lambada[@]}" -c 4 && err_has '--task lambada takes no --cases, which is for tasks computed now'
eval_cpu 2 --task "${lambada[@]}" --new 9 && err_has '--task lambada takes no --new'
eval_cpu 2 --task "$vectors/cases.jsonl" --length 9 && err_has 'cases.jsonl takes no --length, which is for tasks computed now, cost'
eval_cpu 2 --task "$vectors/cases.jsonl" --new 9 && err_has 'no text of it is continued'
eval_cpu 2 --task cost --limit 4 && err_has '--task cost takes no --limit'
run 2 eval --compare "$vectors/cases.jsonl" "$vectors/cases.jsonl" --task mqar && err_has 'runs nothing: it takes no --task'
"$program" eval "$model" -d cpu -q --task - <"$vectors/cases.jsonl" >"$dir/out" 2>"$dir/err" && out_has '^task  *-, 5 cases'

# ---- tables and JSON
eval_cpu 0 --task lambada --data "$vectors/lambada.jsonl" && out_has '^novelist  *10  30.00 ± 15.28 %  192.6'
eval_cpu 0 --task lambada --data "$vectors/lambada.jsonl" --json && cp "$dir/out" "$dir/a.json"
holds 'j["task"] == "lambada" and j["cases"] == 10 and j["results"][0]["complete"]'
holds 'len(j["sha256"]) == 64 and len(j["results"][0]["fingerprint"]) == 16 and j["results"][0]["device"][:3] == "CPU"'
holds 'sum(j["results"][0]["metrics"]["acc"]["samples"]) == 3'
holds 'j["results"][0]["busy_seconds"] is None'
# How busy the device was, where one asks.
eval_cpu 0 --task lambada --data "$vectors/lambada.jsonl" --limit 2 --busy && out_has 'tokens/s, the device busy for [1-9].* % of it'
eval_cpu 0 --task lambada --data "$vectors/lambada.jsonl" --limit 4 --busy --json
holds '0.2 < j["results"][0]["busy_seconds"] / j["results"][0]["seconds"] <= 1'
# Plain lines are lambada_standard's shape.
python3 -c 'import json, sys
for line in open(sys.argv[1], encoding="utf8"): print(json.loads(line)["text"].replace("\n", " "))' \
  "$vectors/lambada.jsonl" >"$dir/lambada.txt"
eval_cpu 0 --task lambada --data "$dir/lambada.txt" --limit 3 --json && holds 'j["cases"] == 3'
# Greedy continuations, and where they end.
cat >"$dir/recall.jsonl" <<'END'
{"context": "It was a dark and stormy night, and the wind blew", "contains": "the", "group": 1}
{"context": "It was a dark and stormy night, and the wind blew", "contains": ["qqq", "THE"], "group": 1}
{"context": "It was a dark and stormy night, and the wind blew", "contains": "the", "until": " ", "group": "cut"}
END
eval_cpu 0 --task "$dir/recall.jsonl" --json
holds '[g["contains"]["value"] for g in j["results"][0]["groups"].values()] == [1, 0]'
# Two checkpoints, two rows; documents.
printf '{"document": "It was a dark night."}\n{"document": ""}\n{"document": "The end"}\n' >"$dir/documents.jsonl"
run 0 eval "$model" "$model/" -d cpu -q --task "$dir/documents.jsonl"
[ "$(grep -c '^novelist  *3  ' "$dir/out")" = 2 ] || complain "$last: not two rows"
# Folders of one name are told apart.
mkdir "$dir/one" "$dir/two" && ln -s "$model" "$dir/one/hf" && ln -s "$model" "$dir/two/hf"
run 0 eval "$dir/one/hf" "$dir/two/hf/" "$model" -d cpu -q --task "$dir/documents.jsonl"
out_has '^one/hf  *3  ' && out_has '^two/hf  *3  ' && out_has '^novelist  *3  '

# ---- golds as other copies of the data sets have them: words, letters
golds() { # golds TASK EXPRESSION: the same scores with the records' golds rewritten by Python's, of the record r
  eval_cpu 0 --task $1 --data "$vectors/$1.jsonl" --json && cp "$dir/out" "$dir/direct"
  python3 -c 'import json, sys
for line in open(sys.argv[1], encoding="utf8"):
    r = json.loads(line)
    eval(sys.argv[2])
    print(json.dumps(r))' "$vectors/$1.jsonl" "$2" >"$dir/other.jsonl"
  eval_cpu 0 --task $1 --data "$dir/other.jsonl" --json
  python3 - "$dir/out" "$dir/direct" <<'END' || complain "$last: other scores with golds as $2"
import json, sys
a, b = (json.load(open(f))["results"][0]["metrics"]["acc"]["samples"] for f in sys.argv[1:])
sys.exit(a != b or len(set(a)) < 2)
END
}
golds siqa 'r.update(correct="ABC"[int(r.pop("label")) - 1])'
golds boolq 'r.update(label=str(bool(r.pop("label", r.pop("answer", 0)))).lower())'
golds boolq 'r.update(label=bool(r.pop("label", r.pop("answer", 0))))'
for wrong in true '"true"'; do # the choices are 1 to 3
  sed "s/\"label\": *\"*[0-9]\"*/\"label\": $wrong/" "$vectors/siqa.jsonl" >"$dir/siqa.jsonl"
  eval_cpu 1 --task siqa --data "$dir/siqa.jsonl" && err_has 'the right answer, "true", is none of the 3'
done
# WikiText as JSON is the same task from standard input.
printf '{"page": "It was a dark night."}\n{"page": "The end of it."}\n' >"$dir/pages.jsonl"
"$program" eval "$model" -d cpu -q --task wikitext --data - <"$dir/pages.jsonl" >"$dir/out" 2>"$dir/err"
last='eval --data -' && out_has '^task  *wikitext, 2 cases'

# What one checkpoint gave is not lost with the next one's failure. One that is not there is known before.
cp -rL "$top/tests/vectors/models/tiny_gated_deltanet" "$dir/mute" && chmod -R u+w "$dir/mute" && rm "$dir/mute/tokenizer.json"
run 1 eval "$model" "$dir/mute" -d cpu -q --task "$dir/documents.jsonl" && out_has '^novelist  *3  ' && err_has 'mute/tokenizer'
run 1 eval "$model" "$dir/nowhere" -d cpu -q --task "$dir/documents.jsonl" && out_empty && err_has 'nowhere'

# ---- malformed files
refused 'not JSON' '{"context": "a", "target": '
refused 'not a JSON object' '[1, 2]'
refused 'a case needs' '{"context": "a"}'
refused '"gold" is missing' '{"context": "a", "choices": ["b", "c"]}'
refused '"gold" is 2, but the choices are 0 to 1' '{"context": "a", "choices": ["b", "c"], "gold": 2}'
refused '"choices" has fewer than two' '{"context": "a", "choices": [], "gold": 0}'
refused '"choices" has an empty choice' '{"context": "a", "choices": ["", "b"], "gold": 0}'
refused '"target" is empty' '{"context": "a", "target": ""}'
refused '"context" is a list, but not of token ids' '{"context": [1, -1], "target": [1]}'
refused 'byte 14 of the line, 0xff, is not UTF-8' $'{"context": "\xff", "target": "b"}'
printf '\xef\xbb\xbf{"context": "a", "target": " b"}\r\n{"context": "a", "target": " b"}\r\n' >"$dir/windows.jsonl"
eval_cpu 0 --task "$dir/windows.jsonl" && out_has '^novelist  *2 ' # a byte order mark, and lines' ends of two bytes
head -c 100000000 /dev/zero | tr '\0' 'x' >"$dir/long.jsonl"
printf '\n{"context": "a", "target": " b"}\n' >>"$dir/long.jsonl"
eval_cpu 1 --task "$dir/long.jsonl" && err_has 'long.jsonl:1: the line is longer than 16 MiB'
eval_cpu 0 --skip-bad --task "$dir/long.jsonl" && out_has '1 lines left out' && out_has '^novelist  *1 '
checks=$((checks + 1)) # in far less memory than the line takes
tail -n 1 "$dir/long.jsonl" >"$dir/short.jsonl"
python3 - "$program" "$model" "$dir/short.jsonl" "$dir/long.jsonl" <<'END' || complain "a long line takes memory"
import os, subprocess, sys
def kilobytes(task):
    p = subprocess.Popen([sys.argv[1], "eval", sys.argv[2], "-d", "cpu", "-q", "--skip-bad", "--task", task],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return os.wait4(p.pid, 0)[2].ru_maxrss
sys.exit(kilobytes(sys.argv[4]) - kilobytes(sys.argv[3]) > 60000)
END
sed 's/"sol1"/"sol3"/' "$vectors/piqa.jsonl" >"$dir/piqa.jsonl"
eval_cpu 1 --task piqa --data "$dir/piqa.jsonl" && err_has 'piqa.jsonl:1: there is no "sol1"'
printf '0\n1\n7\n' >"$dir/piqa-labels.lst"
cp "$vectors/piqa.jsonl" "$dir/piqa.jsonl"
eval_cpu 1 --task piqa --data "$dir/piqa.jsonl" && err_has 'piqa.jsonl:3: the right answer, "7", is none of the 2'
eval_cpu 0 --task piqa --data "$dir/piqa.jsonl" --skip-bad && out_has '1 lines left out' && out_has '^novelist  *2 '
# Other labels are another task: its hash is that of the file and the labels after it.
out_has "^sha256  *$(cat "$dir/piqa.jsonl" "$dir/piqa-labels.lst" | sha256sum | cut -c 1-16)\$"
printf '0\n1\n0\n1\n' >"$dir/piqa-labels.lst" # more labels than records: those of another part
eval_cpu 1 --task piqa --data "$dir/piqa.jsonl" && err_has 'piqa-labels.lst:4: ' && err_has 'ends before this label'
printf '{"context": [99999], "target": [1]}\n' >"$dir/ids.jsonl"
eval_cpu 1 --task "$dir/ids.jsonl" && err_has 'ids.jsonl:1: token id 99999 is outside of the checkpoint'

# ---- tasks computed now: right answers, the same ones for a seed, other programs can run them
made() { run 0 eval --task "$@" --write "$dir/made.jsonl" -q; }
# answers EXPRESSION: Python's, of the words x before the answer and the answer a, for each case.
answers() {
  checks=$((checks + 1))
  python3 - "$dir/made.jsonl" "$1" <<'END' 2>>"$dir/err" || complain "$last: a case is not $1"
import json, sys
from collections import Counter
def compose(words):  # one-line notation: the first element acts first
    p = list(range(len(words[0]) - 2))
    for w in words: p = [int(w[1 + i]) - 1 for i in p]
    return "(" + "".join(str(i + 1) for i in p) + ")"
cases = [json.loads(line) for line in open(sys.argv[1])]
seen = Counter()
for c in cases:
    x, a, length = c["context"].split(), c.get("target", " ")[1:], c["group"]
    seen[a] += 1
    assert eval(sys.argv[2]), (x, a)
assert len(seen) > 1 or "contains" in cases[0]
END
}
made parity --length 5,40 --cases 30 && answers 'len(x) == length and str(x.count("1") % 2) == a'
made modular --length 4,41 --cases 30 --modulus 7 && answers 'len(x) in (length, length - 1) and str(eval(" ".join(x[:-1])) % 7) == a'
made modular-brackets --length 6,40 --cases 30 && answers 'length - len(x) in range(4) and str(eval(" ".join(x[:-1])) % 5) == a'
made group --group S5 --length 3,50 --cases 20 && answers 'len(x) == length and compose(x) == a'
made group --group S4 --length 9 --cases 20 && answers 'compose(x) == a'
made mqar --pairs 6 --keys 20 --length 13,40 --cases 3 &&
  answers 'len(x) == length and x[x.index(x[-1]) + 1] == a and x.index(x[-1]) < 12 and len(set(x[:12:2])) == 6'
made mqar --pairs 6 --keys 20 --writes 3 --length 40 --cases 3 &&
  answers 'len(x) == 40 and len(set(x[:36:2])) == 6 and x[:36].count(x[-1]) == 3 and x[35 - x[35::-1].index(x[-1]) + 1] == a'
made parity --length 30 --cases 5 --seed 3 && cp "$dir/made.jsonl" "$dir/first.jsonl"
made parity --length 30 --cases 5 --seed 3 && cmp -s "$dir/made.jsonl" "$dir/first.jsonl" || complain "$last: other texts for a seed"
made parity --length 30 --cases 5 --seed 3 --json && json && out_has '"results": \[\]' && out_has '"cases": 5' # no checkpoint
cp "$dir/out" "$dir/none.json" && run 1 eval --compare "$dir/none.json" "$dir/none.json" && err_has 'none.json: there is no result'
made parity --length 30 --cases 5 --seed 4 && ! cmp -s "$dir/made.jsonl" "$dir/first.jsonl" || complain "$last: the same texts for another seed"
run 2 eval --task mqar --pairs 9 --keys 8 --write "$dir/x" && err_has 'needs as many --keys'
run 2 eval --task group --group S9 --write "$dir/x" && err_has 'there is no group'
eval_cpu 1 --task niah-2 --data "$vectors/siqa.jsonl" --length 3000 && err_has 'too short for --length 3000'
eval_cpu 2 --task niah-1 --length 150 && err_has 'too short: the question alone'
eval_cpu 2 --task niah-2 --length 300 && err_has 'name its file with --data'
for task in niah-1 mqar parity; do
  eval_cpu 2 --task $task --data "$vectors/siqa.jsonl" && err_has "task $task takes no --data"
done

# Needles: once in the text, at most as long as they were to be, the question at the end. The file gives the same scores.
yes 'He went to the sea. She did not! Why?' | head -n 200 >"$dir/hay.txt"
for n in 1 2 3; do
  data=(--data "$dir/hay.txt")
  ((n > 1)) || data=()
  eval_cpu 0 --task niah-$n "${data[@]}" --length 300,420 --cases 1 --new 4 --write "$dir/made.jsonl" --json
  cp "$dir/out" "$dir/direct"
  answers 'c["context"].count(c["contains"]) == 1 and c["context"].endswith("mentioned in the provided text is")'
  eval_cpu 0 --task "$dir/made.jsonl" --new 4 --json
  python3 - "$dir/out" "$dir/direct" <<'END' || complain "$last: not what niah-$n gave"
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert a["sha256"] == b["sha256"] and a["results"][0]["groups"] == b["results"][0]["groups"]
n = a["results"][0]["tokens"] - 2 * 4  # contexts of 300 - 128 and 420 - 128 tokens at most
assert 0.85 * 464 < n <= 464, n
END
done

# ---- the demonstrations' checkpoints: all right at every length, chance where they must fail
device=(-d cpu)
run 0 demo state-tracking --group S5 --alone --length 8 --words 1 "${device[@]}" --out "$dir/s5"
run 0 demo state-tracking --group A5 --alone --length 8 --words 1 "${device[@]}" --out "$dir/a5"
run 0 demo state-tracking --group S5 --steps 1 --alone --length 8 --words 1 "${device[@]}" --out "$dir/s5_one_step"
run 0 demo recall --key-size 32 --texts 1 --pairs 8 "${device[@]}" --out "$dir/pairs"
run 0 eval "$dir/s5" "$dir/s5_one_step" -d cpu -q --task group --group S5 --length 1,10,100,1000 --cases 4 --json
holds '[g["acc"]["value"] for g in j["results"][0]["groups"].values()] == [1, 1, 1, 1]'
holds 'all(j["results"][1]["groups"][n]["acc"]["value"] <= 0.1 for n in ("100", "1000"))' # chance: 1 / 120
run 0 eval "$dir/a5" -d cpu -q --task group --group A5 --length 10,500 --cases 4 --json
holds '[g["acc"]["value"] for g in j["results"][0]["groups"].values()] == [1, 1]'
run 0 eval "$dir/pairs" -d cpu -q --task mqar --pairs 24 --keys 32 --length 49,100,1000 --cases 4 --json
holds '[g["acc"]["value"] for g in j["results"][0]["groups"].values()] == [1, 1, 1] and j["cases"] == 288'
holds 'j["results"][0]["evaluated"] < j["results"][0]["tokens"] / 10' # a text's pairs are read once
run 0 demo recall --key-size 32 --texts 1 --pairs 8 "${device[@]}" --additive --out "$dir/additive"
run 0 eval "$dir/pairs" "$dir/additive" -d cpu -q --task mqar --pairs 24 --keys 32 --writes 4 --length 193,500 --cases 4 --json
holds '[g["acc"]["value"] for g in j["results"][0]["groups"].values()] == [1, 1]'
holds 'all(0.1 < g["acc"]["value"] < 0.45 for g in j["results"][1]["groups"].values())' # one of four values
run 1 eval "$dir/s5" -d cpu -q --task parity --length 5 && err_has 'parity, case 1: ' # S5's tokenizer has no 0 and 1
# Token ids, for checkpoints without words: S5's word (21345) (21345) (13245), its product (13245).
printf '{"context": [0, 25, 25, 7], "target": [7]}\n{"context": [0, 25, 25, 7], "target": [8]}\n' >"$dir/ids.jsonl"
run 0 eval "$dir/s5" -d cpu -q --task "$dir/ids.jsonl" --json
holds 'j["results"][0]["metrics"]["acc"]["samples"] == [1, 0]'

printf '%s\n' '{"context": "a b", "target": " c", "group": "x\u001b[31my\nz"}' >"$dir/control.jsonl"
eval_cpu 0 --task "$dir/control.jsonl" && out_has ' x?\[31my?z '

# ---- two results compared: case by case where the cases are the same
eval_cpu 0 --task lambada --data "$vectors/lambada.jsonl" --no-bos --json && cp "$dir/out" "$dir/b.json"
run 1 eval --compare "$dir/nowhere" "$dir/a.json" && err_has 'nowhere: no such file or folder'
run 0 eval --compare "$dir/a.json" "$dir/a.json" && out_has 'perplexity .* the same'
run 0 eval --compare "$dir/a.json" "$dir/b.json" --json
holds 'j["same_cases"] and [r["metric"] for r in j["rows"]] == ["acc", "perplexity"] and j["rows"][1]["paired"]'
checks=$((checks + 1))
python3 - "$dir/a.json" "$dir/b.json" "$dir/out" <<'END' || complain "$last: another error than Python's"
import json, math, sys
a, b, got = (json.load(open(f)) for f in sys.argv[1:])
x, y = (f["results"][0]["metrics"]["perplexity"]["samples"] for f in (a, b))
d = [q - p for p, q in zip(x, y)]
m = sum(d) / len(d)
error = math.sqrt(sum((v - m) ** 2 for v in d) / (len(d) - 1) / len(d))
row = got["rows"][1]
assert abs(row["z"] + m / error) < 1e-4, (row["z"], m / error)
assert row["stderr"] < a["results"][0]["metrics"]["perplexity"]["stderr"] / 10  # far surer than two independent runs
END
eval_cpu 0 --task lambada --data "$vectors/lambada.jsonl" --limit 9 --json && cp "$dir/out" "$dir/c.json"
run 0 eval --compare "$dir/a.json" "$dir/c.json" --json && holds 'not j["rows"][1]["paired"]'
# Groups are compared case by case too. A perplexity's own error says nothing against one a thousand times smaller.
group() { run 0 eval "$1" -d cpu -q --task group --length 10,100 --cases $2 --json && cp "$dir/out" "$dir/$3.json"; }
group "$dir/s5" 9 right && group "$dir/s5_one_step" 9 wrong && group "$dir/s5_one_step" 8 fewer
run 0 eval --compare "$dir/right.json" "$dir/wrong.json" --json && holds 'len(j["rows"]) == 6 and all(r["paired"] and r["differs"] for r in j["rows"])'
run 0 eval --compare "$dir/right.json" "$dir/fewer.json" --json
holds 'all(not r["paired"] and r["z"] > 3 and r["stderr"] > r["difference"] / 3 for r in j["rows"] if r["metric"] == "perplexity")'
run 1 eval --compare "$dir/a.json" "$dir/nowhere.json" && err_has 'nowhere.json'
printf '{"results": [\n' >"$dir/broken.json"
run 1 eval --compare "$dir/a.json" "$dir/broken.json" && err_has 'broken.json:2: not JSON'
eval_cpu 0 --task "$vectors/cases.jsonl" --json && cp "$dir/out" "$dir/d.json"
run 1 eval --compare "$dir/a.json" "$dir/d.json" && err_has 'of the task'
run 2 eval --compare "$dir/a.json" && err_has 'two files'

# ---- the loss by position, its moving average, its picture; attention limited to a window
tiny=$top/tests/vectors/models/tiny_delta_net_global
head -c 2000 "$vectors/wikitext.raw" >"$dir/text"
run 0 perplexity "$tiny" "$model" "$dir/text" -d cpu -q --window 700 --by-position "$dir/p.csv" --plot "$dir/p.png" --json
checks=$((checks + 1))
python3 - "$dir/out" "$dir/p.csv" <<'END' 2>>"$dir/err" || complain "$last: the CSV is not what it says"
import csv, json, math, sys
results = json.load(open(sys.argv[1]))["results"]
head, *rows = csv.reader(open(sys.argv[2]))
assert head == ["position"] + [f"{m} {x}" for m in ("tiny_delta_net_global", "novelist") for x in ("nll", "nll over 501 tokens")]
assert [int(r[0]) for r in rows] == list(range(700)) and rows[0][1] == ""  # the first token is not predicted
tokens = results[0]["tokens"]
n = [sum(1 for w in range(results[0]["windows"]) if w * 700 + i < tokens) if i else 0 for i in range(700)]
nll = [float(r[1] or 0) for r in rows]
assert math.isclose(sum(a * b for a, b in zip(nll, n)), results[0]["nll"] * results[0]["predictions"], rel_tol=1e-6)
for i in (0, 3, 300, 699):
    around = range(max(0, i - 250), min(700, i + 251))
    mean = sum(nll[k] * n[k] for k in around) / sum(n[k] for k in around)
    assert math.isclose(mean, float(rows[i][2]), rel_tol=1e-6), i
END
[ "$(od -An -tx1 -j16 -N8 "$dir/p.png")" = " 00 00 04 b0 00 00 03 20" ] || complain "$last: no picture of 1200 x 800"
run 0 perplexity "$model" "$dir/text" -d cpu -q --window 0 --bos --json
words=$(python3 -c 'import re, sys; print(len(re.split(r"\s+", open(sys.argv[1], encoding="utf8").read())))' "$dir/text")
holds "math.isclose(math.log(j['word_perplexity']) * $words, j['nll'] * j['predictions'], rel_tol=1e-6)"
nll() { python3 -c 'import json, sys; print("%.6f" % json.load(open(sys.argv[1]))["nll"])' "$dir/out"; }
run 0 perplexity "$tiny" "$dir/text" -d cpu -q --json && whole=$(nll)
run 0 perplexity "$tiny" "$dir/text" -d cpu -q --json --attention-window 512 && [ "$(nll)" = "$whole" ] ||
  complain "$last: a window as long as the text changes its loss"
run 0 perplexity "$tiny" "$dir/text" -d cpu -q --json --attention-window 16 && [ "$(nll)" != "$whole" ] ||
  complain "$last: a window of 16 changes nothing"

# ---- cost over length: a row for each length, caches that grow, a picture; accuracy over lengths
hidden=$top/tests/vectors/models/tiny_gated_deltanet
run 0 eval "$tiny" "$hidden" -d cpu -q --task cost --length 400,100,200 --plot "$dir/cost.png" --json
holds '[r["tokens"] for r in j["rows"]] == [100, 200, 400] * 2 and all(r["prefill"] > 0 and r["decode"] > 0 for r in j["rows"])'
holds 'all(32 <= r["drawn"] <= 512 for r in j["rows"]) and j["rows"][0]["drawn"] < 100' # the row of 200 begins there
holds 'j["rows"][2]["cache_bytes"] > 2.5 * j["rows"][0]["cache_bytes"] > 0 and j["rows"][5]["cache_bytes"] == 0'
holds 'j["rows"][3]["state_bytes"] == j["rows"][5]["state_bytes"] > 0'
run 0 eval "$tiny" -d cpu -q --task cost --length 100 && out_has '^tiny_delta_net_global  *100 '
run 0 eval "$tiny" -d cpu -q --task cost --length 100,400 --attention-window 16 --json # caches of 16 tokens, and no more
holds 'all(r["cache_bytes"] == 0 for r in j["rows"]) and j["rows"][0]["state_bytes"] == j["rows"][1]["state_bytes"]'
holds 'j["attention_window"] == 16 and all(r["prefill"] > 0 and r["decode"] > 0 for r in j["rows"])'
run 0 eval "$dir/s5" "$dir/s5_one_step" -d cpu -q --task group --length 1,4,16 --cases 4 --plot "$dir/group.png"
for picture in cost group; do
  [ "$(od -An -tx1 -j16 -N8 "$dir/$picture.png")" = " 00 00 04 b0 00 00 03 20" ] || complain "$picture.png: no picture"
done
eval_cpu 2 --task "$vectors/cases.jsonl" --plot "$dir/x.png" && err_has 'no groups that are numbers' && out_empty # before anything is computed

# ---- a log: a killed run goes on, with nothing lost and nothing twice
python3 - "$dir/many.jsonl" <<'END'
import json, random, sys
r = random.Random(5)
words = "the old house stood by sea and he went out of it into a dark night with her brother".split()
with open(sys.argv[1], "w") as f:
    for i in range(60):
        f.write(json.dumps({"context": " ".join(r.choice(words) for _ in range(40)), "target": " " + r.choice(words)}) + "\n")
END
table() { sed -n '/^checkpoint/,$p' "$dir/out"; }
eval_cpu 0 --task "$dir/many.jsonl" && table >"$dir/whole"
"$program" eval "$model" -d cpu -q --task "$dir/many.jsonl" --log "$dir/log" >"$dir/out" 2>"$dir/err" &
victim=$!
for _ in $(seq 500); do
  [ "$(grep -c '"case"' "$dir/log" 2>/dev/null)" -ge 10 ] 2>/dev/null && break
  sleep 0.02
done
kill -9 $victim
wait $victim 2>/dev/null
before=$(grep -c '"case"' "$dir/log")
[ "$before" -ge 10 ] && [ "$before" -lt 60 ] || complain "killed with $before cases done"
truncate -s -3 "$dir/log" # as if the kill had cut its last line
eval_cpu 0 --task "$dir/many.jsonl" --log "$dir/log" && out_has "$((before - 1)) cases from the log"
table | cmp -s - "$dir/whole" || complain "$last: another table than a whole run's"
cases() { python3 - "$dir/log" <<'END'
import json, sys
seen = []
for line in open(sys.argv[1]):
    try: seen.append(json.loads(line)["case"])
    except (ValueError, KeyError): pass
print(len(seen), len(set(seen)))
END
}
[ "$(cases)" = "60 60" ] || complain "the log has $(cases) cases, not 60 once each"
eval_cpu 0 --task "$dir/many.jsonl" --log "$dir/log" && out_has '60 cases from the log' && out_has ' 0 tokens in'
# Ctrl-C leaves a table of what is done. A script's background jobs ignore it, unless they are told not to.
python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$program" eval "$model" -d cpu -q --task "$dir/many.jsonl" --log "$dir/stopped" >"$dir/out" 2>"$dir/err" &
victim=$!
for _ in $(seq 500); do
  [ "$(grep -c '"case"' "$dir/stopped" 2>/dev/null)" -ge 10 ] 2>/dev/null && break
  sleep 0.02
done
kill -INT $victim
wait $victim
[ $? = 130 ] || complain "Ctrl-C: no exit code 130"
last="Ctrl-C" && out_has 'stopped after [1-5][0-9] cases' && out_has "^novelist  *$(grep -c '"case"' "$dir/stopped") "
# Another option is another run. How many cases are wanted is no such option.
eval_cpu 0 --task "$dir/many.jsonl" --log "$dir/log" --limit 5 && out_has '5 cases from the log'
eval_cpu 0 --task "$dir/many.jsonl" --log "$dir/log" --limit 5 --no-bos && ! grep -q 'from the log' "$dir/out" ||
  complain "$last: took scores of other options"
eval_cpu 1 --task "$vectors/cases.jsonl" --log "$dir/nowhere/log" && err_has 'nowhere/log'

rmdir cli_eval 2>/dev/null
echo "cli_eval.sh: $checks checks, $failures failures"
[ $failures = 0 ]
