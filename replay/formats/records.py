"""Turn an imported exchange into the records that the proxy would have written."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from wiretape.events.chat.request import facts
from wiretape.events.chat.results import results_in
from wiretape.events.core.json_text import ABSENT, as_list, as_object, parse
from wiretape.events.core.settings import Settings
from wiretape.events.emit import EMITTER_VERSION, Emitter
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.events.tape.upcast import FORMAT
from wiretape.events.wire.sse import BOM, Decoder
from wiretape.proxy.relay.attempts import chat_cause, exchange_ending
from wiretape.proxy.security.headers import masked_path, taped_answer, taped_request
from wiretape.proxy.store.catalogue_row import digests, request_digest

from .imported import CHAT, EVENT_STREAM, Imported

__all__ = ["records_of"]

_JSON_LINES: Final = frozenset({"application/jsonl", "application/ndjson", "application/x-ndjson"})
#: The distance of reads without a recorded time.
_STEP_US: Final = 1
_RESPONSES_END: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}
)


def records_of(one: Imported, source: str, stream: str) -> list[Record]:
    """Return the records of one stream; equal exchanges give equal records."""
    chat = one.method == "POST" and one.target.partition("?")[0].endswith(CHAT)
    recorder, clock = Recorder(), one.clock
    request = parse(one.request_body) if one.request_body else ABSENT
    records = [recorder.record("open", 0, _opened(one, source, stream, chat=chat))]
    records += _request(recorder, one, request, chat=chat)
    records += recorder.attempt(clock.attempt, {"number": 1, "upstream": one.upstream})
    head: dict[str, Any] = {"status": one.status, "headers": taped_answer(_raw(one.headers))}
    if one.decoded:
        head["decoded"] = one.decoded
    records.append(recorder.record("head", clock.head, {**head, **one.framing}))
    framed = _is_framed(one, chat=chat, streams=request is ABSENT or as_object(request).get("stream") is True)
    t = clock.head
    for number, (at, data) in enumerate(one.reads):
        t = at or clock.head + _STEP_US * (number + 1)
        if recorder.decoder.overflow:
            recorder.decoder.keep(data)
        elif data:
            records += recorder.read(t, data) if framed else [recorder.body(t, data)]
    end = max(t, clock.end if clock.end is not None else t + _STEP_US)
    records += recorder.rest(end)
    return [*records, recorder.end(end, {**_ended(one, records, chat=chat), **one.framed})]


def _opened(one: Imported, source: str, stream: str, *, chat: bool) -> dict[str, Any]:
    settings = Settings()
    keys: dict[str, Any] = {
        "format": FORMAT,
        "stream": stream,
        "dialect": "chat" if chat else "",
        "profile": settings.profile,
        "settings": {"on_partial": settings.on_partial, "tools": settings.tools},
        "emitter": EMITTER_VERSION,
        "route": "",
        "imported": source,
    }
    if one.created_us is not None:
        keys |= {"created": one.created_us // 1_000_000, "created_us": one.created_us}
    return keys


def _request(recorder: Recorder, one: Imported, request: Any, *, chat: bool) -> list[Record]:
    keys: dict[str, Any] = {
        "method": one.method,
        "path": masked_path(one.target.encode("utf-8", "surrogateescape")),
        "headers": taped_request(_raw(one.request_headers)),
    }
    if chat:
        keys["facts"] = facts({"stream": True} if request is ABSENT else request).to_keys()
        keys["messages"] = len(as_list(as_object(request).get("messages")))
    records = [recorder.record("request", one.clock.request, keys, one.request_body or None)]
    results = _results(request, one.request_body or b"") if chat else None
    return [*records, recorder.record("results", one.clock.request, results)] if results else records


def _results(request: Any, body: bytes) -> dict[str, Any] | None:
    """Return the tool results of a request as `proxy/relay` records them when no catalogue knows the calls."""
    found = results_in(request)
    if found is None:
        return None
    rows: list[dict[str, Any]] = []
    for result, digest in zip(found.results, digests(each.arguments for each in found.results), strict=True):
        row: dict[str, Any] = {"id": result.id, "name": result.name, "arguments": digest}
        if result.orphan:
            row = {"id": result.id, "orphan": True}
        row |= {"failed": True} if result.failed else {}
        rows.append(row | ({"output": result.output} if result.output else {}))
    keys: dict[str, Any] = {"results": rows, "after": found.after, "request": request_digest(body)}
    return keys | ({"more": found.more} if found.more else {})


def _is_framed(one: Imported, *, chat: bool, streams: bool) -> bool:
    """Decide whether the body is recorded as frames, as `proxy/relay` does."""
    if not chat or not streams:
        return one.content_type == EVENT_STREAM
    if one.status >= 400 or one.content_type == "application/json":
        return False
    if one.content_type == EVENT_STREAM:
        return True
    return b"".join(data for _, data in one.reads[:1]).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"[", b"<")


def _raw(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("utf-8", "replace"), value.encode("utf-8", "replace")) for name, value in headers]


# -- the ending -------------------------------------------------------------------------------------------------------


def _ended(one: Imported, records: Sequence[Record], *, chat: bool) -> dict[str, Any]:
    if not chat:
        cut = one.cause == "eof" and ("broke" in one.framed or ("framed" not in one.framed and _is_cut(one, records)))
        ending, flags = exchange_ending(one.status, one.cause, cut=cut)
        return {"cause": one.cause, "ending": one.ending or ending, "flags": list(one.flags if one.ending else flags)}
    cause = "status" if one.status >= 400 and one.cause == "eof" else chat_cause(one.cause)
    emitter = Emitter()
    for record in records:
        emitter.feed(record)
    ending, found = emitter.ending(cause)
    return {"cause": cause, "ending": ending, "flags": list(found)}


def _is_cut(one: Imported, records: Sequence[Record]) -> bool:
    """Report whether a body of unknown framing stops inside an event, is empty, or lacks its protocol's last event."""
    if one.content_type in _JSON_LINES and not one.decoded:
        lines = [line for line in one.body.split(b"\n") if line.strip()]
        return bool(lines) and (parse(lines[-1]) is ABSENT or _lacks_last_event(lines))
    if one.content_type == "application/json" and not one.decoded:
        body = one.body
        return one.status < 400 and bool(body.strip()) and parse(body.removeprefix(BOM)) is ABSENT
    if any(record.kind == "rest" and (record.raw or b"").strip() for record in records):
        return True
    if one.content_type != EVENT_STREAM:
        return False
    blocks = (record.raw or b"" for record in records if record.kind == "frame")
    payloads = [frame.payload for block in blocks for frame in Decoder().feed(block) if frame.payload]
    return all(parse(payload) in ({}, [], None, "") for payload in payloads) or _lacks_last_event(payloads)


def _lacks_last_event(payloads: Iterable[bytes]) -> bool:
    """Report whether a known protocol began and its closing event is missing."""
    missing = False
    for payload in payloads:
        if payload.strip() == b"[DONE]":
            return False
        value = as_object(parse(payload))
        if _closes(value):
            return False
        missing = missing or _has_closing_event(value)
    return missing


def _has_closing_event(value: dict[str, Any]) -> bool:
    """Report whether a payload belongs to a protocol that closes its streams with an event."""
    kind, what = _text(value, "type"), _text(value, "object")
    return (
        kind.startswith(("message_", "content_block_", "response."))  # Anthropic Messages, OpenAI Responses
        or what in ("text_completion", "chat.completion.chunk")  # completions, and chat under another path
        or what.startswith("thread.")  # Assistants, which only `[DONE]` ends
        or "candidates" in value  # Gemini
        or (value.get("done") is False and ("message" in value or "response" in value))  # Ollama, in lines
        or kind in ("message-start", "content-start", "content-delta", "content-end")  # Cohere
    )


def _closes(value: dict[str, Any]) -> bool:
    """Report whether a payload closes its stream; as for chat streams, a finish reason is enough."""
    return (
        _text(value, "type") in ("message_stop", "message-end", "error")
        or _text(value, "type") in _RESPONSES_END
        or any(_has_finish(member) for member in value.values())
        or bool(as_object(value.get("promptFeedback")).get("blockReason"))
        or value.get("done") is True
        or value.keys() == {"error"}
    )


def _has_finish(member: Any) -> bool:
    return any(as_object(each).get(name) for each in as_list(member) for name in ("finish_reason", "finishReason"))


def _text(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    return text if isinstance(text, str) else ""
