# tools.sh: what the tests of the server share; sourced with PROGRAM TOP. Sets program, top and dir, a folder below the
# current one that goes at the end, as do all processes of the test.
program=$(realpath "$1") top=$(realpath "$2")
dir=$(mktemp -d -p "$PWD" "$(basename "$0" .sh).XXXXXX")
export XDG_CACHE_HOME=$dir TMPDIR=$dir
servers=() ports=() others=()
finish() {
  local code=$?
  if ((code)); then tail -n 20 "$dir"/*.log >&2 2>/dev/null || true; fi
  kill -KILL "${servers[@]}" "${others[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT

# until_true SECONDS COMMAND...: waits for it.
until_true() {
  local tries=$(($1 * 20))
  shift
  until "$@" >/dev/null 2>&1; do
    ((tries-- > 0)) || { echo "timeout: $*"; exit 1; }
    sleep 0.05
  done
}

free_port() {
  local port
  for _ in $(seq 100); do
    port=$((10000 + RANDOM % 20000))
    if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo $port
      return
    fi
  done
  return 1
}

answers() {
  (exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET /health HTTP/1.0\r\n\r\n' >&3 && read -r -t 5 line <&3 &&
    [[ $line == *' 200 '* ]])
}

# serve I ARGS: starts replica I on a port that it keeps, and waits until it answers. Where $device is set, on that.
serve() {
  local i=$1
  shift
  ports[i]=${ports[i]:-$(free_port)}
  "$program" serve --device "${device:-cpu}" --port "${ports[i]}" "$@" >>"$dir/serve$i.log" 2>&1 &
  servers[i]=$!
  until_true 60 answers "${ports[i]}"
}

# redis ARGS: starts a Redis on $redis_port.
redis() {
  redis_port=${redis_port:-$(free_port)}
  redis-server --bind 127.0.0.1 --port "$redis_port" --save '' --dir "$dir" "$@" >>"$dir/redis.log" 2>&1 &
  redis_process=$!
  others+=($!)
  until_true 30 redis-cli -p "$redis_port" ping
}
