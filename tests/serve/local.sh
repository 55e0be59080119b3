#!/bin/bash
# local.sh PROGRAM TOP: what `./bootstrap serve` runs, on ports of the test's own, and the examples for batch users
# against it; a replica is killed; the end leaves no process.
set -euo pipefail
. "$(dirname "$0")/tools.sh"
cd "$dir"
never() { if "$@" >said 2>&1; then echo "succeeds: $*"; exit 1; fi; }
: >home.log
ports=($(free_port) $(free_port) $(free_port) $(free_port) $(free_port))
cat >local <<END
set -euo pipefail
say() { echo "bootstrap: \$*" >&2; }
die() { say "\$*"; exit 1; }
jobs=2 serve_program=$program
source "$top/examples/serve/local.bash"
serve_local --device cpu --model "$top/models/novelist" "\$@"
END
export DELTAIC_PORTS=${ports[*]}
set -m # a group of its own, and Ctrl-C is not ignored
never bash local --no-such-option
grep -q 'no-such-option' said
bash local >home.log 2>&1 &
home=$!
set +m
others+=(-$home)
until_true 120 grep -q ready home.log
url=http://127.0.0.1:${ports[0]} secure=https://127.0.0.1:${ports[1]}
[[ $(stat -c %a build/serve build/serve/password build/serve/site.pem | tr '\n' ' ') == '700 600 600 ' ]]
cat /proc/[0-9]*/cmdline >processes 2>/dev/null || true
never grep -qaF "$(<build/serve/password)" processes
grep -qa "port.${ports[2]}" processes

curl -sS --cacert build/serve/site.crt "$secure/v1/models" | jq -e '.data | length == 1'
never curl -sS "$secure/v1/models" # nobody vouches for the certificate but its owner
[[ $(curl -sS -o /dev/null -w '%{http_code}' "$url/metrics") == 403 ]]

# A conversation goes on at the other replica, behind the one that is killed.
turn() { curl -sS --retry 10 --retry-all-errors -H 'Content-Type: application/json' -d "$1" "$url/v1/completions"; }
turn '{"prompt": "The old house", "max_tokens": 8, "temperature": 0}' >one
kill -KILL $(pgrep -g $home -f -- "--port ${ports[2]}")
id=$(jq -r .id one)
turn '{"prompt": " and", "previous_response_id": "'"$id"'", "max_tokens": 8, "temperature": 0}' >two
jq -e '.choices[0].text | length > 0' two
until_true 60 answers "${ports[2]}" # it is started again

# A replica that ends with a text running refuses what is new; HAProxy sends that to the other one.
figure() { curl -sS "http://127.0.0.1:${ports[3]}/metrics" | sed -n "s/^deltaic_$1 //p"; }
runs() { [[ $(figure slots_busy) != 0 ]]; }
curl -sS -d '{"prompt": "The", "max_tokens": 2000, "n": 8, "ignore_eos": true}' \
  "http://127.0.0.1:${ports[3]}/v1/completions" >long &
long=$!
until_true 30 runs
kill -TERM $(pgrep -g $home -f -- "--port ${ports[3]}")
for _ in $(seq 8); do
  [[ $(curl -sS -o /dev/null -w '%{http_code}' -d '{"prompt": "The", "max_tokens": 1}' "$url/v1/completions") == 200 ]]
done
[[ $(curl -sS -o /dev/null -w '%{http_code}' -d '{"prompt": "The", "max_tokens": 1}' \
  "http://127.0.0.1:${ports[3]}/v1/completions") == 503 ]]
wait $long
jq -e '.choices | length == 8' long
until_true 60 answers "${ports[3]}"

if command -v parallel >/dev/null; then
  printf 'It was %s\n' a b c d e f >prompts
  DELTAIC_URL=$url "$top/examples/serve/parallel.sh" <prompts >answers 2>said || { cat said; exit 1; }
  [[ $(jq -r .prompt answers) == "$(<prompts)" && $(jq -r '.answer | length > 0' answers | sort -u) == true ]]
fi

kill -INT -$home
never wait $home
others=()
grep -q ending home.log
never pgrep -g $home
for port in "${ports[@]}"; do never bash -c ": </dev/tcp/127.0.0.1/$port"; done
echo "ended"
