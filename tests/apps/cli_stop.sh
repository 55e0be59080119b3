#!/bin/bash
# cli_stop.sh PROGRAM TOP: signals end every command in good order, and a full disk leaves the old files and no others.
set -u
. "$(dirname "$0")/cli_tools.sh"
tiny=$top/tests/vectors/models/tiny_gated_deltanet
for _ in $(seq 200); do cat "$top/LICENSE"; done >"$dir/long"

# stopped SIGNAL CODE WAIT ARGS...: starts the program, runs WAIT, sends the signal; checks the exit code.
stopped() {
  local signal=$1 code=$2 wait=$3 pid got=0
  shift 3
  last="deltaic $*, SIG$signal"
  checks=$((checks + 1))
  : >"$dir/out"
  set -m # else a background job ignores SIGINT
  "$program" "$@" >"$dir/out" 2>"$dir/err" <"$input" &
  pid=$!
  set +m
  $wait
  kill -"$signal" $pid
  wait $pid || got=$?
  [ $got = "$code" ] || complain "$last: exit code $got, not $code"
}
input=/dev/null
until_text() { for _ in $(seq 300); do [ -s "$dir/out" ] && return || sleep 0.1; done; }
until_there() { for _ in $(seq 300); do compgen -G "$1" >/dev/null && return || sleep 0.1; done; complain "$last: no $1"; }

for signal in INT=130=Ctrl-C TERM=143=SIGTERM HUP=129=SIGHUP; do
  IFS== read -r signal code name <<<"$signal"
  stopped "$signal" "$code" until_text generate -m "$tiny" -d cpu -n 10000000 --ignore-eos --state-out "$dir/state"
  err_has "ended .*$name"
  run 0 generate -m "$tiny" -d cpu --state-in "$dir/state" -n 3
  rm -f "$dir/state"
  stopped "$signal" "$code" "sleep 2" perplexity -m "$top/models/novelist" -d cpu --batch 16 --plot "$dir/none.png" "$dir/long"
  err_has "stopped by $name"
  # The temporary folder is there while the refit computes.
  last=prune
  stopped "$signal" "$code" "until_there $dir/new.*.tmp" prune "$top/models/novelist" "$dir/new" -d cpu --cut 0.5 \
    --text "$dir/long" -n 1500 --refit
  err_has "stopped by $name"
  [ -z "$(compgen -G "$dir/new*")" ] || complain "$last: something is left behind"
done
# A recovery that is stopped leaves the pruned model.
head -c 500 "$top/LICENSE" >"$dir/short"
until_recovers() { until_there "$dir/kept.*.tmp"; sleep 3; }
stopped INT 130 until_recovers prune "$tiny" "$dir/kept" -d cpu --cut 0.5 --method l1 --eval "$dir/short" --recover "$dir/long" -w 64
err_has 'kept: has the pruned model; the recovery was stopped$'
run 0 generate -m "$dir/kept" -d cpu -q -n 3 --prompt The
[ -z "$(compgen -G "$dir/kept.*")" ] || complain "$last: something is left behind"
# An ignored signal stays ignored, as nohup wants it.
(trap '' HUP; "$program" generate -m "$tiny" -d cpu -n 10000000 --ignore-eos >"$dir/out" 2>"$dir/err" & sleep 1; kill -HUP $!; sleep 1
  kill -TERM $! && code=0 && { wait $! || code=$?; } && [ "$code" = 143 ]) || complain "nohup: SIGHUP ends the program"
# A conversation is saved.
mkfifo "$dir/input" && (echo Hello; exec sleep 30) >"$dir/input" &
feeder=$!
until_there "$dir/input"
input=$dir/input
stopped TERM 143 'sleep 2' chat "$top/models/novelist" -d cpu -q --history "$dir/history" --template chatml
kill $feeder
grep -aq '"question":"Hello"' "$dir/history" || complain "$last: the conversation is not saved"

# full FILE PATTERN ARGS...: the disk is full, and FILE, which the program should replace, stays.
full() {
  local file=$1 pattern=$2 before
  shift 2
  echo old >"$file"
  before=$(ls "$dir")
  (trap '' XFSZ; ulimit -f 1; checks=0 failures=0; run 1 "$@"; err_has "$pattern"; exit $failures) || failures=$((failures + 1))
  checks=$((checks + 1))
  [ "$(cat "$file")" = old ] || complain "$last: the old file is not there any more"
  [ "$(ls "$dir")" = "$before" ] || complain "$last: left behind: $(ls "$dir")"
}
: >"$dir/out" && : >"$dir/err"
head -c 3000 "$top/docs/tour.md" >"$dir/text"
full "$dir/positions.csv" 'positions.csv: File too large' perplexity "$tiny" "$dir/text" -d cpu -q --by-position "$dir/positions.csv"
full "$dir/plot.png" 'plot.png: File too large' perplexity "$tiny" "$dir/text" -d cpu -q --plot "$dir/plot.png"
full "$dir/ranks.csv" 'ranks.csv: File too large' rank "$tiny" --text "$dir/text" -d cpu -q --csv "$dir/ranks.csv"
full "$dir/state" 'state: cannot be written' generate "$tiny" -d cpu -n 3 --state-out "$dir/state"
full "$dir/cases" 'File too large' eval --task group --length 1,4,16 --cases 50 --write "$dir/cases"

echo "$checks runs, $failures failures"
[ $failures = 0 ]
