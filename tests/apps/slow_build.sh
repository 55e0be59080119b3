#!/bin/bash
# slow_build.sh PROGRAM WITHOUT TOP: WITHOUT is the program without kernels for matrix units. On a device that has some it
# says so, once, and runs; the program itself does not.
set -uo pipefail
program=$1 without=$2 top=$3
export MESA=mesa26 LP_NATIVE_VECTOR_WIDTH=256 BARE=1 LC_ALL=C
warning='has matrix units, but this build has no kernels for them'
device=$("$DELTAIC_LAUNCHER" "$program" devices --brief 2>/dev/null | sed -n 's/^[* ]*\([0-9][0-9]*\) .*/\1/p' | head -1)
[[ $device ]] || { echo "there is no Vulkan device"; exit 1; }
# told PROGRAM: how often it says so.
told() {
  "$DELTAIC_LAUNCHER" "$1" generate -m "$top/tests/vectors/models/tiny_delta_net" -d "$device" --prompt a -n 1 2>&1 >/dev/null |
    grep -c "$warning"
}
[[ $(told "$without") == 1 ]] || { echo "a build without kernels for matrix units does not say so once"; exit 1; }
[[ $(told "$program") == 0 ]] || { echo "a build with all kernels complains"; exit 1; }
"$DELTAIC_LAUNCHER" "$without" devices 2>/dev/null | grep -c 'left out' >/dev/null || { echo "devices does not say so"; exit 1; }
! "$DELTAIC_LAUNCHER" "$program" devices 2>/dev/null | grep 'left out' || exit 1
# What is masked is as good as not there.
matrices() { env "$@" "$DELTAIC_LAUNCHER" "$program" devices 2>/dev/null | grep -c '^  matrices'; }
[[ $(matrices A=) -gt 0 && $(matrices DELTAIC_NO_MATRICES=1) == 0 ]] || { echo "DELTAIC_NO_MATRICES masks nothing"; exit 1; }
