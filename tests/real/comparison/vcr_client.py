"""Asks through VCR.py and httpx, in an environment of their own: a cassette is written, or played.

`python vcr_client.py once|none CASSETTE PORT KEY`, the body on stdin; prints what it heard as JSON, in the form of
tests/replay/raw_client.py.
"""

import base64
import importlib
import json
import sys
import time
from typing import Any

import httpx

__all__: list[str] = []


def _heard(mode: str, cassette: str, url: str, key: str, body: bytes) -> dict[str, Any]:
    vcr: Any = importlib.import_module("vcr")  # installed where this runs
    status, head_s, ending = 0, 0.0, "ended"
    headers: list[tuple[str, str]] = []
    reads: list[tuple[float, str]] = []
    began = time.monotonic()
    try:
        with vcr.use_cassette(cassette, record_mode=mode, match_on=["method", "scheme", "host", "path", "body"]):
            asked = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            with httpx.stream("POST", url, content=body, headers=asked, timeout=15, trust_env=False) as answer:
                status, headers = answer.status_code, list(answer.headers.items())
                head_s = time.monotonic() - began
                for data in answer.iter_raw():
                    reads.append((time.monotonic() - began, base64.b64encode(data).decode()))  # noqa: PERF401 - an error keeps them
    except httpx.RemoteProtocolError:
        ending = "cut"
    except httpx.ReadError:
        ending = "reset"
    except Exception as error:  # noqa: BLE001 - the exception is the result
        ending = type(error).__name__
    ended_s = time.monotonic() - began
    return {
        "status": status,
        "headers": headers,
        "head_s": head_s,
        "reads": reads,
        "ending": ending,
        "ended_s": ended_s,
    }


if __name__ == "__main__":
    _mode, _cassette, _port, _key = sys.argv[1:]
    _url = f"http://127.0.0.1:{_port}/v1/chat/completions"
    sys.stdout.write(json.dumps(_heard(_mode, _cassette, _url, _key, sys.stdin.buffer.read())) + "\n")
