#!/bin/bash
# without_plugins.sh PROGRAM TOP: a program whose build has no plugins says what each command lacks, and its manual and
# completion are without these commands.
set -u
. "$(dirname "$0")/cli_tools.sh"
for command in prune tune rank; do
  refused 1 'this build is without LAPACK' $command a b
  refused 1 'this build is without LAPACK' $command --help
done
refused 1 'this build has no server: .*OpenSSL' serve
run 0 info "$top/tests/vectors/models/tiny_gated_deltanet" && err_empty
run 0 --help=man && err_empty && out_has '^.SS deltaic generate' && ! grep -q '^\.SS deltaic \(prune\|tune\|rank\|serve\)$' "$dir/out" ||
  complain "$last: describes what is not there"
run 0 --help=bash && err_empty && ! grep -q "'prune '" "$dir/out" || complain "$last: completes what is not there"
echo "without_plugins: $checks checks, $failures failures"
[ $failures = 0 ]
