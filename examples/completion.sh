#!/bin/sh
# Streams a completion from a running server: FOREDRAFT_URL=http://host:port examples/completion.sh
set -eu
curl --no-buffer --silent --show-error --fail "${FOREDRAFT_URL:-http://127.0.0.1:8000}/v1/completions" \
    --header 'content-type: application/json' \
    --data '{"prompt": "def mean(values):", "max_tokens": 32, "temperature": 0, "stream": true}'
