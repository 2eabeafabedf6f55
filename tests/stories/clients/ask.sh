#!/bin/sh
# curl, and sed to read the words out of the frames.
set -eu
curl --silent --show-error --fail --no-buffer "$OPENAI_BASE_URL/chat/completions" \
    --header 'Content-Type: application/json' --header 'Authorization: Bearer none' --data '{
      "model": "scripted-1", "stream": true,
      "messages": [{"role": "user", "content": "How is the weather in Oslo?"}]
    }' | sed -n 's/^data: .*"content":"\([^"]*\)".*/\1/p' | tr -d '\n'
