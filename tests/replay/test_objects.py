"""Normalise responses that are not conversations: only ids with the prefix of a conversation's are renamed."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pytest

from tests.replay.made import stream
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.replay.normalize.normalize import normalise
from wiretape.replay.playback.script import Script, json_answer


def exchange(answer: Any, body: Any = None, path: str = "/v1/files", **headers: str) -> list[Record]:
    """Return an exchange with a JSON response."""
    script = json_answer(dumps(answer))
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    records = stream(Script(status=200, headers=(*script.headers, *pairs), steps=script.steps))
    raw = dumps(body or {"model": "m"})
    keys = {**records[1].keys, "path": path}
    records[1] = records[1]._replace(raw=raw, payload=raw, value=json.loads(raw), keys=keys)
    return records


def answers(records: Sequence[Record]) -> list[Any]:
    values = [record.raw for record in records if record.kind == "body"]
    return [json.loads(raw) for raw in values if raw] or [record.value for record in records if record.kind == "frame"]


def normalised(*streams: list[Record]) -> list[list[Record]]:
    done = normalise(streams)
    assert normalise(done) == done, "idempotent"
    return done


ID: Final = "5fL4v5HttlejQ9kd9HzA"
#: Responses that stay.
CONTENT: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "a model": {"id": f"file-{ID}", "object": "model", "created": 1686935002},
        "models": {"object": "list", "data": [{"id": "gpt-4o-2024-05-13", "object": "model", "created": 1686935002}]},
        "models of others": {"data": [{"id": "gpt-4o-2024-05-13", "created": 1686935002}]},
        "a row of data": {"id": 1704443587, "name": "x", "created": 1704443587},
        "a name": {"id": "my-own-tool-2024", "object": "tool", "size_at": 12, "created": 17004439},
        "a name with the prefix of an id": {"id": "batch-process", "object": "workflow", "last_id": "step-by-step"},
        "metadata": {"object": "file", "metadata": {"id": f"file-{ID}", "created_at": 1704443587}},
    }
)


@pytest.mark.parametrize("kind", sorted(CONTENT))
def test_lasting_names_and_content_stay(kind: str) -> None:
    [done] = normalised(exchange(CONTENT[kind]))
    assert answers(done) == [CONTENT[kind]]
