#!/bin/bash
# serve_clients.sh PROGRAM TOP FOLDER: curl and the clients that people have against `deltaic serve`, unmodified. npm
# installs them into FOLDER. Exit code 77: they are not to be had.
set -eu
program=$1 top=$2 folder=$3
skip() {
  echo "skipped: $*"
  exit 77
}
command -v node npm curl >/dev/null || skip "node, npm and curl are not all here"
(($(node -p 'process.versions.node.split(".")[0]') >= 18)) || skip "node $(node -v) is older than 18"
mkdir -p "$folder"
cp "$top/tests/apps/serve_clients.mjs" "$folder"
packages=(openai@6.49.0 ai@6.0.326 @ai-sdk/openai-compatible@2.0.92)
if [ "$(cat "$folder/installed" 2>/dev/null)" != "${packages[*]}" ]; then
  npm install --prefix "$folder" --no-audit --no-fund "${packages[@]}" >"$folder/npm.log" 2>&1 ||
    skip "npm cannot install ${packages[*]}: $(tail -1 "$folder/npm.log")"
  echo "${packages[*]}" >"$folder/installed"
fi

# start TEMPLATE: the server, whose address is then in url.
start() {
  "$program" serve "$top/models/novelist" -d cpu -p 0 --template "$1" 2>"$folder/server.log" &
  server=$!
  trap 'kill $server; wait $server' EXIT
  for _ in $(seq 600); do
    url=$(sed -n 's/^server  \(http[^,]*\),.*/\1/p' "$folder/server.log")
    [ -z "$url" ] || break
    kill -0 $server || { cat "$folder/server.log"; exit 1; }
    sleep 0.1
  done
}

start chatml
[ "$(curl -sS "$url/health")" = '{"status":"ok"}' ]
curl -sS "$url/v1/completions" -H 'Content-Type: application/json' -d '{"prompt": "The old house", "max_tokens": 4}' |
  grep '"completion_tokens":4' >/dev/null
streamed=$(curl -sSN "$url/v1/completions" -d '{"prompt": "The", "max_tokens": 4, "stream": true}')
[ "$(tail -1 <<<"$streamed")" = 'data: [DONE]' ]
cd "$folder"
node serve_clients.mjs "$url" models completions chat responses abort errors ai_sdk
kill $server
wait $server || true
start qwen3.5
node serve_clients.mjs "$url" thinking
