#!/bin/bash
# GNU parallel against `deltaic serve`: parallel.sh <PROMPTS >ANSWERS. A prompt a line; answers as lines of JSON, in
# order. DELTAIC_URL: the server; DELTAIC_KEY: an API key, where it wants one; JOBS: requests at once.
set -euo pipefail
ask() {
  jq -nc --arg prompt "$1" '{prompt: $prompt, max_tokens: 64, temperature: 0, store: false}' |
    curl -sS --fail-with-body --retry 5 --retry-connrefused -H 'Content-Type: application/json' \
      ${DELTAIC_KEY:+-H "Authorization: Bearer $DELTAIC_KEY"} -d @- \
      "${DELTAIC_URL:-http://127.0.0.1:8080}/v1/completions" |
    jq -c --arg prompt "$1" '{prompt: $prompt, answer: .choices[0].text}'
}
export -f ask
SHELL=/bin/bash parallel --keep-order --jobs "${JOBS:-32}" --halt soon,fail=1 ask
