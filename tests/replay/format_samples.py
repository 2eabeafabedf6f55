"""Synthetic recordings in the formats of other tools, written by hand for these tests."""

import gzip
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tests.support.chat import DONE, finish, text
from wiretape.events.core.json_text import dumps

FRAMES: Final = [text("Grüße: 'x'\n# y", role=True), b": ping\n\n", text(" 🐍"), finish(), DONE]
BODY: Final = b"".join(FRAMES)
ASKED: Final = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
_URL: Final = "https://api.example.com/v1/chat/completions?beta=1"


HAR: Final[dict[str, Any]] = {
    "log": {
        "version": "1.2",
        "creator": {"name": "hand", "version": "0"},
        "entries": [
            {
                "startedDateTime": "2026-11-18T10:00:00.000Z",
                "time": 1500,
                "request": {
                    "method": "POST",
                    "url": _URL,
                    "headers": [{"name": "content-type", "value": "application/json"}],
                    "postData": {"mimeType": "application/json", "text": ASKED.decode()},
                },
                "response": {
                    "status": 200,
                    "headers": [{"name": "Content-Type", "value": "text/event-stream"}],
                    "content": {"size": len(BODY), "mimeType": "text/event-stream", "text": BODY.decode()},
                },
                "timings": {"blocked": -1, "send": 1, "wait": 249, "receive": 1250},
            }
        ],
    }
}

CURL: Final = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nDate: today\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)

#: PyYAML's style: folded lines, escapes, a quote inside a quote.
VCR: Final = b"""\
interactions:
- request:
    body: '{"model": "m", "stream": true, "messages": [{"role": "user", "content":
      "hi"}]}'
    headers:
      accept:
      - '*/*'
      authorization:
      - Bearer secret
      content-type:
      - application/json
    method: POST
    uri: https://api.example.com/v1/chat/completions?beta=1
  response:
    body:
      string: "%b"
    headers:
      Content-Type:
      - text/event-stream
      Date:
      - Wed, 18 Nov 2026
        10:00:00 GMT
    status:
      code: 200
      message: OK
version: 1
"""

CASSETTER: Final = b"""\
# written by hand
version: 1
interactions:
- request:
    method: POST
    uri: https://api.example.com/v1/chat/completions?beta=1
    headers: {content-type: [application/json]}
    body:
      type: json
      content:
        model: m
        stream: true
        messages: &said
        - role: user
          content: hi
  response:
    status: 200
    headers:
      content-type:
      - text/event-stream
    body:
      type: binary
      content: '%b'
  recorded_at: '2026-11-18T10:00:00Z'
ws_interactions:
- uri: wss://ws.example.com/stream
  headers: {}
  frames: []
  recorded_at: '2026-11-18T10:00:00Z'
"""


def _escaped(body: bytes) -> bytes:
    """Escape a text as PyYAML does in double quotes: ASCII only, one line folded at a space."""
    known = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}
    said = "".join(known.get(each) or (each if each.isascii() else f"\\U{ord(each):08X}") for each in body.decode())
    return said.replace(" ", "\\\n        \\ ", 1).encode()


JSON_CASSETTE: Final = {
    "version": 1,
    "interactions": [
        {
            "request": {"method": "POST", "uri": _URL, "body": ASKED.decode(), "headers": {"accept": ["*/*"]}},
            "response": {
                "status": {"code": 200, "message": "OK"},
                "headers": {"Content-Type": ["text/event-stream"]},
                "body": {"string": BODY.decode()},
            },
        }
    ],
}

AIMOCK: Final = {
    "fixtures": [
        {
            "match": {"userMessage": "hi", "model": "m"},
            "response": {"content": "Hello", "reasoning": "Hm", "usage": {"total_tokens": 3}},
            "recordedTimings": {"ttftMs": 100, "interChunkDelaysMs": [1], "totalDurationMs": 101},
        },
        {
            "match": {"userMessage": "save"},
            "response": {"toolCalls": [{"name": "save", "arguments": {"a": 1}}]},
            "truncateAfterChunks": 2,
        },
        {"match": {}, "response": {"error": {"message": "slow down"}, "status": 429, "retryAfter": 7}},
        {"match": {}, "response": {"embedding": [0.5]}},
    ]
}

#: Files of each format.
SAMPLES: Final[Mapping[str, list[bytes]]] = MappingProxyType(
    {
        "sse": [BODY, BODY.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + BODY, b": only a comment\n\n", BODY[:-40]],
        "curl": [
            CURL + BODY,
            CURL + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in FRAMES) + b"0\r\n\r\n",
            CURL + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in FRAMES),
            b"HTTP/2 401 \ncontent-type: application/json\ncontent-length: 13\n\n" + b'{"error": {}}',
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nContent-Type: text/event-stream\r\n\r\n"
            + gzip.compress(BODY),
        ],
        "har": [dumps(HAR), dumps(HAR).replace(b'"text":"', b'"comment":"none","text":"')],
        "vcr": [
            VCR % _escaped(BODY),
            CASSETTER % BODY.hex().encode(),
            dumps(JSON_CASSETTE),
        ],
        "aimock": [dumps(AIMOCK)],
    }
)
