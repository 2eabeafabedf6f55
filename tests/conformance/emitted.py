"""What we send for one captured stream, in its own dialect or crossed to another one."""

import functools
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.laws.said import Said, payloads, said
from tests.support.chat import tape
from tests.support.corpus import Stream
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Ended
from wiretape.events.crossing.cross import cross
from wiretape.events.crossing.request import Options
from wiretape.events.dialects import DIALECTS
from wiretape.events.emit import Emitter, Summariser

from .helpers import Answer

__all__ = ["PAIRS", "SETTINGS", "Emitted", "crossing_of", "emitted", "request_of"]

#: Dialect of the upstream and of the client. Chat in front of chat has conformance.md.
PAIRS: Final = tuple(
    (upstream, client)
    for client in ("responses", "messages", "chat")
    for upstream in ("chat", "responses", "messages")
    if (upstream, client) != ("chat", "chat")
)
#: Every mode of ending a stream, of holding calls, and of reporting them.
SETTINGS: Final[tuple[Mapping[str, Any], ...]] = tuple(
    {"on_partial": on_partial, "tools": tools, "tool_events": cards}
    for on_partial in ("error", "warn", "both")
    for tools in ("live", "held")
    for cards in (True, False)
)


class Emitted(NamedTuple):
    """One stream as it came and as it was sent."""

    id: str
    upstream: str
    client: str
    settings: Mapping[str, Any]
    #: All that was captured, whether or not it was cut.
    captured: bytes
    sent: bytes
    ended: Ended
    finish: str
    #: What our own fold holds, without calls that a client may not run: the SDKs complete their JSON as they like.
    answer: Answer

    @property
    def error_due(self) -> str:
        """Return why the stream must not be taken for whole, if so."""
        if "malformed_call" in self.ended.flags:
            return "malformed_call"
        return "" if self.ended.ending == "completed" else self.ended.ending

    @property
    def warned(self) -> bool:
        """Return whether a warning ends it instead of an error."""
        warns = self.settings.get("on_partial") == "warn"
        return bool(self.error_due) and warns and self.ended.ending != "upstream_error"


def request_of(dialect: str, names: list[str]) -> dict[str, Any]:
    """Return a request of one dialect that declares these functions."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    tools: list[dict[str, Any]]
    asked: dict[str, Any]
    if dialect == "chat":
        tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in names]
        asked = {"messages": [{"role": "user", "content": "q"}], "stream_options": {"include_usage": True}}
    elif dialect == "responses":
        tools = [{"type": "function", "name": name, "parameters": schema, "strict": False} for name in names]
        asked = {"input": "q"}
    else:
        tools = [{"name": name, "input_schema": schema} for name in names]
        asked = {"messages": [{"role": "user", "content": "q"}], "max_tokens": 9}
    return {"model": "m", "stream": True, **asked, **({"tools": tools} if tools else {})}


def emitted(stream: Stream, upstream: str, client: str, *, cut: int | None = None, **settings: Any) -> Emitted:
    """Emit one stream of a dialect to a client of the same or another one."""
    request = request_of(client, sorted(set(_said(stream.body, upstream).names.values())))
    records = tape(
        stream.body[:cut],
        request=request,
        dialect=client,
        upstream_dialect=upstream if upstream != client else "",
        crossing=crossing_of(json.dumps(request), client, upstream) if upstream != client else None,
        **settings,
    )
    emitter = Emitter()
    sent = b"".join(frame for record in records for frame in emitter.feed(record))
    summary = Summariser().feed(*records).summary
    wire, answer = summary.wire, summary.answer()
    assert wire.ended is not None, "every tape has an ending"
    counts = None if wire.usage is None else DIALECTS[client].counts(wire.usage)
    calls = ((call.id, call.name, call.arguments) for call in wire.calls() if call.state is State.RUNNING)
    usage = (0, 0) if counts is None else (counts.input or 0, counts.output or 0)
    said_here = Answer(answer.text, answer.reasoning, answer.refusal, tuple(calls), usage)
    return Emitted(stream.id, upstream, client, settings, stream.body, sent, wire.ended, answer.finish, said_here)


@functools.lru_cache(maxsize=4)
def _said(body: bytes, dialect: str) -> Said:
    return said(payloads(body), dialect)


@functools.lru_cache(maxsize=256)
def crossing_of(request: str, client: str, upstream: str) -> Mapping[str, Any]:
    """Return what a crossed request keeps for the way back."""
    return cross(json.loads(request), theirs=DIALECTS[client], ours=DIALECTS[upstream], options=Options()).crossing
