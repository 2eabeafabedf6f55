"""Our own reader for `hermes.tool.progress`, so that no SDK decides what it sees."""

import json
from typing import Any, NamedTuple


class Progress(NamedTuple):
    """What one frame says of one call."""

    id: str
    status: str
    tool: str


def progress(stream: bytes) -> list[Progress]:
    """All of one stream, in order. Raises where such a frame is not in the form that clients know."""
    seen: list[Progress] = []
    for block in stream.replace(b"\r\n", b"\n").split(b"\n\n"):
        fields = [line.partition(b":")[::2] for line in block.split(b"\n") if line]
        if (b"event", b"hermes.tool.progress") in [(name, value.strip()) for name, value in fields]:
            said: dict[str, Any] = json.loads(b"".join(value for name, value in fields if name == b"data"))
            assert [choice["delta"] for choice in said["choices"]] == [{}], f"nothing in the delta: {said}"
            seen.append(Progress(said["toolCallId"], said["status"], said["tool"]))
    return seen
