# What `./bootstrap serve` does once the program is built, sourced by bootstrap: two replicas, Redis behind them,
# HAProxy in front. All of it stays in build/serve, and Ctrl-C ends all of it. DELTAIC_PORTS: other ports than the usual.
serve_here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
serve_packages=(redis-server haproxy openssl)

serve_answers() {
  (exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET /health HTTP/1.0\r\n\r\n' >&3 && read -r -t 5 line <&3 &&
    [[ $line == *' 200 '* ]]) 2>/dev/null
}

# serve_until WHAT LOG COMMAND...: waits up to five minutes, as long as everything runs.
serve_until() {
  local what=$1 log=$2 tries=3000
  shift 2
  until "$@"; do
    if ((tries-- == 0)) || ! serve_alive; then
      die "$what does not answer: $(tail -n 1 "$log")"
    fi
    sleep 0.1
  done
}

serve_alive() {
  local process
  for process in "${serve_processes[@]}"; do kill -0 "$process" 2>/dev/null || return 1; done
}

# serve_keep LOG COMMAND...: runs it, again when it ends, until it is asked to end itself.
serve_keep() {
  local log=$1 child= ending=
  shift
  trap 'ending=yes; kill -TERM $child 2>/dev/null' TERM
  trap '' INT # bootstrap hears Ctrl-C and ends things in order
  while [[ ! $ending ]]; do
    (exec "$@") >>"$log" 2>&1 &
    child=$!
    if [[ $ending ]]; then kill -TERM $child 2>/dev/null; fi # the signal came before the child
    local code=0
    wait $child || code=$?
    while kill -0 $child 2>/dev/null; do wait $child || code=$?; done # a signal ended the first wait
    if ((code == 2)); then return; fi                                 # its options are wrong
    if [[ ! $ending ]]; then sleep 0.5; fi
  done
}

serve_stop() {
  trap '' INT TERM
  say "ending"
  local process
  # In order: no new requests, then the replicas, which write what waits, then the store.
  for process in ${serve_processes[3]-} ${serve_processes[1]-} ${serve_processes[2]-} ${serve_processes[0]-}; do
    kill -TERM "$process" 2>/dev/null || true
    if [[ $process != "${serve_processes[1]-}" ]]; then wait "$process" 2>/dev/null || true; fi # both replicas at once
  done
  wait 2>/dev/null || true
}

serve_local() {
  local folder=$PWD/build/serve http https one two store
  read -r http https one two store <<<"${DELTAIC_PORTS:-8080 8443 8081 8082 6399}"
  local threads=$((jobs > 1 ? jobs / 2 : 1)) replica
  serve_processes=()
  PATH=$PATH:/usr/sbin # where Debian has HAProxy
  mkdir -p "$folder" && chmod 700 "$folder"
  if [[ ! -s $folder/password ]]; then (umask 077 && openssl rand -hex 24 >"$folder/password"); fi
  if [[ ! -s $folder/site.pem ]]; then
    (umask 077 && openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=localhost \
      -addext 'subjectAltName=DNS:localhost,IP:127.0.0.1' -keyout "$folder/site.key" \
      -out "$folder/site.crt" 2>/dev/null &&
      cat "$folder/site.crt" "$folder/site.key" >"$folder/site.pem")
  fi
  export DELTAIC_STORE=redis://127.0.0.1:$store DELTAIC_STORE_PASSWORD
  DELTAIC_STORE_PASSWORD=$(<"$folder/password")
  export DELTAIC_HTTP=127.0.0.1:$http DELTAIC_HTTPS=127.0.0.1:$https DELTAIC_PEM=$folder/site.pem
  export DELTAIC_ONE=127.0.0.1:$one DELTAIC_TWO=127.0.0.1:$two
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap serve_stop EXIT
  # The password comes on standard input, so that it is in no list of processes.
  rm -f "$folder"/*.log
  (trap '' INT; exec redis-server - <<<"bind 127.0.0.1
port $store
dir $folder
save \"\"
requirepass $DELTAIC_STORE_PASSWORD" >"$folder/redis.log" 2>&1) &
  serve_processes+=($!)
  for replica in "$one" "$two"; do
    serve_keep "$folder/$replica.log" \
      "${serve_program:-build/deltaic}" serve --port "$replica" --threads "$threads" "$@" &
    serve_processes+=($!)
  done
  say "loading the model"
  for replica in "$one" "$two"; do
    serve_until "the replica on port $replica" "$folder/$replica.log" serve_answers "$replica"
  done
  (trap '' INT; exec haproxy -db -q -f "$serve_here/haproxy.cfg" >"$folder/haproxy.log" 2>&1) &
  serve_processes+=($!)
  serve_until HAProxy "$folder/haproxy.log" serve_answers "$http"
  say "ready: http://127.0.0.1:$http/ and https://127.0.0.1:$https/ (certificate: build/serve/site.crt);" \
    "Ctrl-C ends it"
  while serve_alive; do sleep 1 & wait $! || true; done
  die "a part ended; build/serve has the logs"
}
