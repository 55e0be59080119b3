#!/bin/bash
# page.sh PROGRAM TOP CHROMIUM NODE [PICTURES]: the server's page in a headless Chromium.
set -euo pipefail
. "$(dirname "$0")/tools.sh"
serve 0 -m "$top/models/novelist"
XDG_CONFIG_HOME=$dir \
  timeout 300 "$4" "$top/tests/serve/page.mjs" "$3" "http://127.0.0.1:${ports[0]}/" "${servers[0]}" ${5:+"$5"}
