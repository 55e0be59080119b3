#!/bin/bash
# cli_manual.sh PROGRAM TOP: the manual and the completion have every command and option, and are well formed.
set -u
. "$(dirname "$0")/cli_tools.sh"

page=$dir/deltaic.1 completion=$dir/deltaic.bash
run 0 --help=man && err_empty
cp "$dir/out" "$page"
run 0 --help=bash && err_empty
cp "$dir/out" "$completion"

# ---- the manual, as its reader sees it
groff -man -ww -Tascii -P-cbou "$page" >"$dir/out" 2>"$dir/err" || complain "groff fails"
last=groff && err_empty
printf '.TH A 1\n.NO\n' | groff -man -ww -Tascii -z 2>"$dir/err"
last="groff of a page with an error" && err_has "NO"

# all_in WHAT FILE WORDS...: every word is in the file, not as a part of another.
all_in() {
  local what=$1 file=$2 word
  shift 2
  for word in "$@"; do
    checks=$((checks + 1))
    grep -qE -e "(^|[^a-z-])$word([^a-z-]|\$)" "$file" || complain "$word of $what is not in ${file##*/}"
  done
}
options_of() { "$program" "$@" --help | sed -nE 's/^ +(-., )?(--[a-z0-9-]+).*/\2/p'; }

# ---- every command, every option in its own part
commands=$("$program" help | sed -nE '/^commands:/,/^$/s/^  ([a-z]+) .*/\1/p')
[ "$(wc -w <<<"$commands")" -gt 9 ] || complain "there are few commands: $commands"
all_in deltaic "$completion" $commands
for command in $commands 'demo state-tracking' 'demo recall'; do
  case $command in demo | help | version) continue ;; esac
  options=$(options_of $command)
  [ "$options" ] || complain "$command has no options"
  sed 's/\\-/-/g' "$page" | awk -v part=".SS deltaic $command" '/^\.S[SH] / {on = $0 == part} on' >"$dir/$command.man"
  all_in "$command" "$dir/$command.man" $(grep -vx -- --help <<<"$options")
  grep -F "'$command '*)" "$completion" >"$dir/$command.bash"
  all_in "$command" "$dir/$command.bash" $options
done

# ---- what Tab offers
. "$completion"
# offers EXPECTED WORDS...: of the last word, after the others.
offers() {
  local expected=$1
  shift
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _deltaic
  checks=$((checks + 1))
  [ "${COMPREPLY[*]}" = "$expected" ] || complain "after '$*' Tab offers '${COMPREPLY[*]}', not '$expected'"
}
offers generate deltaic gen
offers "--help --version" deltaic --
offers --temperature deltaic generate --temp
offers --temperature deltaic generate -n 5 --temp
offers "" deltaic generate --file ""   # files
offers "" deltaic info ""
offers "state-tracking recall" deltaic demo ""
offers --key-size deltaic demo recall --k
offers exit-codes deltaic help exi

echo "cli_manual.sh: $checks checks, $failures failures"
[ $failures = 0 ]
