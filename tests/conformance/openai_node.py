"""The official openai SDK for Node reads what we send: `python -m tests.conformance.openai_node`."""

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.corpus import ABSENT, load

from .said import Answer, Reading, Truth, differences, truth
from .synthetic import STREAMS

_FOLDER: Final = Path(__file__).parent / "node"


class Pair(NamedTuple):
    """One body, read by adding up what the iterator gives, and by the helper, which gives all or nothing."""

    iterated: Reading
    helped: Reading


def missing() -> str:
    """What must be installed first, if anything."""
    if shutil.which("node") is None:
        return "there is no node on PATH"
    return "" if (_FOLDER / "node_modules").is_dir() else "its packages are not installed: `make test-node` does that"


def read(bodies: Sequence[bytes]) -> tuple[str, list[Pair]]:
    """The version of the SDK, and what it makes of these bytes."""
    lines = b"".join(b'{"body":"%b"}\n' % base64.b64encode(body) for body in bodies)
    done = subprocess.run(["node", "read.mjs"], cwd=_FOLDER, input=lines, stdout=subprocess.PIPE, check=True)
    head, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    return head["sdk"], [Pair(_reading(answer["iterated"]), _reading(answer["helped"])) for answer in answers]


def check(pair: Pair, due: Truth) -> list[str]:
    """What it says of our bytes that is not so."""
    found = [f"iterated: {each}" for each in differences(pair.iterated, due, helper=False)]
    if not (due.error_due and pair.helped.stream_error):
        found += [f"helper: {each}" for each in differences(pair.helped, due, helper=False)]
    return found


def _reading(fields: dict[str, Any]) -> Reading:
    answers: dict[str, dict[str, Any]] = fields["answers"] or {}
    return Reading(
        answers={int(index): _answer(answer) for index, answer in answers.items()},
        usage=fields["usage"],
        stream_error=fields["stream_error"],
        loop_error=fields["loop_error"],
    )


def _answer(fields: dict[str, Any]) -> Answer:
    legacy = fields.get("legacy")
    calls = [call or {"id": "", "type": "", "name": "", "arguments": ""} for call in fields["calls"]]  # or a hole
    return Answer(
        role=fields["role"],
        text=fields["text"],
        reasoning=fields["reasoning"],
        refusal=fields["refusal"],
        calls=[(call["id"], call["name"], call["arguments"]) for call in calls],
        legacy=(legacy["name"], legacy["arguments"]) if legacy else None,
        types={call["type"] for call in calls},
        finish=fields["finish"],
    )


def main() -> int:
    """The exit status."""
    if lack := missing():
        sys.exit(f"the SDK for Node cannot run: {lack}")
    if not load():
        print(ABSENT)
    upstreams = [(stream.id, stream.body) for stream in load()]
    upstreams += [(f"synthetic: {name}", b"".join(stream.upstream)) for name, stream in STREAMS.items()]
    names = [name for name, _ in upstreams for _ in range(2)]
    truths = [truth(upstream, usage=usage) for _, upstream in upstreams for usage in (False, True)]
    sdk, pairs = read([due.sent for due in truths])
    trios = zip(names, pairs, truths, strict=True)
    found = [f"{name}: {each}" for name, pair, due in trios for each in check(pair, due)]
    print(f"openai {sdk} for Node: {len(upstreams)} streams, each asked for usage and not: {len(found)} differences")
    print("\n".join(found[:20]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
