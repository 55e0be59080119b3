#!/bin/bash
# debian.sh FILE.deb: installs the package in a fresh Debian 12 and runs the program there, and a program that is compiled
# against it with pkg-config and one with CMake. Needs root and debootstrap; DEBIAN is the folder of the system (a
# temporary one that goes at the end, unless it is set), MIRROR where its packages come from.
set -euo pipefail
package=$(realpath "$1") top=$(dirname "$(readlink -f "$0")")/../..
[[ ${DEBIAN-} ]] || { DEBIAN=$(mktemp -d); temporary=$DEBIAN; }
trap 'umount -l "$DEBIAN/proc" 2>/dev/null || true; if [[ ${temporary-} ]]; then rm -rf "$temporary"; fi' EXIT
if [[ ! -e $DEBIAN/etc/debian_version ]]; then
  debootstrap --variant=minbase bookworm "$DEBIAN" "${MIRROR:-http://deb.debian.org/debian}" >/dev/null
fi
cp -L /etc/resolv.conf /etc/hosts "$DEBIAN/etc/" 2>/dev/null || true
mount -t proc proc "$DEBIAN/proc"
rm -rf "$DEBIAN/root/embed" && cp -r "$top/tests/embed" "$DEBIAN/root/embed"
cp -r "$top/tests/vectors/models/tiny_gated_deltanet" "$DEBIAN/root/embed/model"
cp "$package" "$DEBIAN/root/deltaic.deb"
inside() { chroot "$DEBIAN" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
inside apt-get -qq update
inside apt-get -qq -y --no-install-recommends install /root/deltaic.deb >/dev/null
inside deltaic --version
inside deltaic info /root/embed/model
inside deltaic generate -m /root/embed/model -q -n 5 --prompt a >/dev/null
inside deltaic prune /root/embed/model /root/embed/half --cut 0.5 --method l1
inside apt-get -qq -y --no-install-recommends install g++ pkg-config cmake make >/dev/null
inside bash -ec 'cd /root/embed
  gcc -std=c11 app.c runtime.c host.c -o app $(pkg-config --cflags --libs deltaic)
  ./app model
  cmake -B build -DBY=find_package -DPRUNE=ON >/dev/null
  cmake --build build >/dev/null
  build/app_cpp half
  build/app_prune half'
inside dpkg -s deltaic | grep -E '^(Installed-Size|Depends)'
inside apt-get -qq -y remove deltaic >/dev/null
! inside test -e /usr/bin/deltaic
