"""`make fuzz-api`: schemathesis against every own endpoint of a real proxy but the endless streams.

    python -m tests.fuzz.api [--seconds 300] [--seed 1] [OPTION OF SCHEMATHESIS ...]

Fails on a status, media type or body that the OpenAPI document does not have, and on every 500. The requests come from
the document that the proxy serves; a scripted upstream answers what becomes a stream.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

import trio

from tests.failures.child import Child, answered, serving
from tests.house.tree import ROOT
from tests.proxy.scripted import chunk, request_of
from tests.support.house import DONE, HEAD, call, finish, post, role, text, usage

TOOL: Final = ROOT / ".cache/real/schemathesis/bin/st"
_KEY: Final = "wt-" + "fuzz" * 10
_REQUESTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "/v1/chat/completions": {"model": "m", "stream": True, "messages": []},
    "/v1/runs": {"model": "m", "input": "hi"},
}
_OUTPUTS: Final = {"tool_outputs": [{"call_id": "call_0", "output": "12 degrees"}]}
_CALL: Final = (role(), text("Let me look."), call('{"city":"Bern"}', "weather"), finish("tool_calls"), usage(), DONE)
_ANSWER: Final = (text("It is 12 degrees."), finish(), usage(), DONE)
_FEED_EVERY_S: Final = 0.5
#: `/events` of a stream or a run ends only with the stream, as `/inspect` does; the others are relayed where Wiretape
#: has no answer.
_LEFT_OUT: Final = "/(events|inspect)$|^/v1/(responses|messages)/"
_CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "ignored_auth",
)


async def _upstream(stream: trio.abc.Stream) -> None:
    """Call a tool, so that a run waits; answer once there is an output, so that it ends."""
    while asked := await request_of(stream):
        frames = _ANSWER if b'"tool_call_id"' in asked else _CALL
        await stream.send_all(HEAD + b"".join(map(chunk, frames)) + b"0\r\n\r\n")


async def _feed(child: Child) -> None:
    """Start streams and runs, and end every second run: the fuzzer finds their ids in the lists."""
    headers = (f"Authorization: Bearer {_KEY}", "Connection: close")
    before = said = b""
    for number in count():
        for path, body in _REQUESTS.items():
            client = await child.connect()
            await client.send_all(post(body, *headers, path=path))
            said = await answered(client)
        if number % 2 and before:
            client = await child.connect()
            await client.send_all(post(_OUTPUTS, *headers, path=f"/v1/runs/{before.decode()}/tool_outputs"))
            await answered(client)
        before = b"".join(re.findall(rb"run_[0-9a-f]{32}", said))
        await trio.sleep(_FEED_EVERY_S)


async def _fuzz(seconds: int, seed: int, options: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        environment = {"WIRETAPE_KEY": _KEY, "WIRETAPE_CORS_ORIGINS": "https://app.test"}
        async with serving(Path(folder) / "data", _upstream, environment) as child, trio.open_nursery() as nursery:
            nursery.start_soon(_feed, child)
            base = child.url.removesuffix("/v1")
            key = ("--header", f"Authorization: Bearer {_KEY}")
            command = [str(TOOL), "run", f"{base}/wiretape/openapi.json", "--url", base, *key]
            command += ["--max-time", str(seconds), "--seed", str(seed), "--checks", ",".join(_CHECKS)]
            command += ["--exclude-path-regex", _LEFT_OUT, "--continue-on-failure", "--request-timeout", "20", *options]
            done = await trio.run_process(command, check=False, cwd=folder)
            nursery.cancel_scope.cancel()
        failed = any(word in child.log for word in (b"control_failed", b"run_failed", b"Traceback"))
        if failed:
            sys.stderr.buffer.write(child.log)
        return int(failed) or done.returncode


def main() -> None:
    """Fuzz for a time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given, options = parser.parse_known_args()
    sys.exit(trio.run(_fuzz, given.seconds, given.seed, options))


if __name__ == "__main__":
    main()
