#!/bin/bash
# desk.sh DESK TOP [PICTURE]: presses the keys of examples/desk on a screen of its own, and reads what it says.
# PICTURE: keeps the screen with three alternatives there, as xwd. DESK_SANITIZED=1: its times do not count.
set -euo pipefail
desk=$1 top=$2 picture=${3-}
folder=$(mktemp -d -p "$PWD" desk.XXXXXX)
started=()
finish() {
  kill "${started[@]}" 2>/dev/null || true
  wait
  rm -rf "$folder"
}
trap finish EXIT
length=$(cat "$top"/examples/desk/* | wc -l)
((length < 700)) || { echo "examples/desk has $length lines: an example is to be short"; exit 1; }
export XDG_CACHE_HOME=$folder/cache XDG_CONFIG_HOME=$folder/config GSETTINGS_BACKEND=memory GTK_A11Y=none
export GSK_RENDERER=cairo GDK_BACKEND=x11 GTK_THEME=Adwaita GDK_DEBUG=gl-disable
# until SECONDS COMMAND...: waits for it.
until_true() {
  local tries=$(($1 * 20))
  shift
  until "$@" >/dev/null 2>&1; do
    ((tries-- > 0)) || { echo "timeout: $*"; cat "$folder/said"; exit 1; }
    sleep 0.05
  done
}
Xvfb -displayfd 3 -screen 0 900x620x24 -nolisten tcp -fbdir "$folder" 3>"$folder/display" 2>"$folder/xvfb" &
started+=($!)
until_true 30 test -s "$folder/display"
export DISPLAY=:$(<"$folder/display")

code=0
"$desk" --model no/such/model >"$folder/said" 2>"$folder/failed" || code=$?
((code == 1)) || { cat "$folder/failed" && exit 1; }
grep -x 'desk: no/such/model: no such file or folder' "$folder/failed"

"$desk" --model "$top/models/novelist" --device -1 --tokens 150 >"$folder/said" &
program=$!
started+=($program)
keys() { xdotool key --delay 40 "$@"; }
said() { [[ $(grep -c '^read' "$folder/said") == "$1" ]]; }
until_true 60 grep -x opened "$folder/said"
window=$(xdotool search --sync --onlyvisible --name '^desk$')
xdotool windowfocus --sync "$window"

typed="The old house stood on a hill, and nobody had lived there since"
xdotool type --delay 20 "$typed"
keys ctrl+Return
until_true 120 said 1
if [[ $picture ]]; then cp "$folder/Xvfb_screen0" "$picture"; fi
keys alt+2
keys ctrl+Return
until_true 120 said 2
keys ctrl+z ctrl+z ctrl+z # the second continuation, the choice, the first continuation
keys ctrl+Return
until_true 120 said 3
keys ctrl+z ctrl+y ctrl+z
xdotool type --delay 20 ' that'
keys ctrl+q
wait "$program"
cat "$folder/said"

mapfile -t lines <"$folder/said"
number='([0-9]+)'
[[ ${lines[1]} =~ ^"read "$number" tokens, remembered 0, wrote "$number$ ]]
read=${BASH_REMATCH[1]} wrote=${BASH_REMATCH[2]}
((read > 8 && wrote == 150))
# What was written and what undo brings back is not computed again.
[[ ${lines[2]} == "read 0 tokens, remembered $((read + wrote)), wrote 150" ]]
[[ ${lines[3]} =~ ^"read 0 tokens, remembered $read, wrote "$number$ ]]
((BASH_REMATCH[1] == 150))
# The page's thread never works for 50 ms, and its frames come on time, but for what else runs on this machine.
[[ ${lines[4]} =~ ^"frames "$number", over 50 ms "$number", longest "[0-9.]+" ms, most processor time "$number ]]
((BASH_REMATCH[1] > 5))
[[ ${DESK_SANITIZED-} ]] || ((BASH_REMATCH[2] * 4 < BASH_REMATCH[1] && BASH_REMATCH[3] < 50))
[[ ${lines[5]} == "text $typed that" && ${#lines[@]} == 6 ]]

# More tokens than any processor makes before Escape: another alternative as it is written, then stop.
"$desk" --model "$top/models/novelist" --device -1 --tokens 1000000 >"$folder/stopped" &
program=$!
started+=($program)
until_true 60 grep -x opened "$folder/stopped"
xdotool windowfocus --sync "$(xdotool search --sync --onlyvisible --name '^desk$')"
xdotool type --delay 20 "$typed"
keys ctrl+Return
sleep 0.6
keys alt+3 Escape
until_true 60 grep '^read' "$folder/stopped"
keys ctrl+q
wait "$program"
[[ $(grep '^read' "$folder/stopped") =~ ", wrote "$number$ ]]
((BASH_REMATCH[1] < 1000000))
