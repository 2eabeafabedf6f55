"""Turn the records of a stream into the script of the proxy: what its client got."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from wiretape.events.core.json_text import as_object
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.proxy.relay.attempts import WHOLE
from wiretape.proxy.relay.http_responses import relayed_head, stream_head, wrapped_error

from .player import Speed, head_of, headers_to_send, keys_of, status_of, steps_of
from .script import Fault, Script

__all__ = ["client_script"]

_SECOND_US: Final = 1_000_000


def client_script(records: Sequence[Record], speed: Speed) -> Script:
    """Return the emitted frames with the head and the ending that the proxy gave them."""
    commit = next((record for record in records if record.kind == "commit"), None)
    if commit is None:  # the client left before it got anything
        return Script(unanswered=Fault.STALL)
    end = records[-1] if records[-1].kind == "end" else None
    # A proxy that was killed emitted nothing for its end.
    crashed = end is not None and end.keys.get("cause") == "crashed"
    sent = list(_emitted(records[:-1] if crashed else records))
    size = sum(len(data) for _, data in sent)
    fault = Fault.CUT if crashed else _fault(records, commit, end, size)
    return Script(
        status=status_of(commit.keys),
        headers=_headers(records, commit, size, fault),
        steps=list(steps_of(commit.t, sent, end, fault, speed)),
        head_delay_s=speed.delay((commit.t - records[0].t) / _SECOND_US),
    )


def _emitted(records: Sequence[Record]) -> Iterator[tuple[int, bytes]]:
    """Yield what went out, one send for everything at one time."""
    emitter = Emitter()
    for t, same in groupby(records, key=lambda record: record.t):
        if data := b"".join(frame for record in same for frame in emitter.feed(record)):
            yield t, data


def _is_verbatim(records: Sequence[Record]) -> bool:
    """Return whether the response passed unchanged."""
    return records[0].keys.get("dialect") != "chat" or records[0].keys.get("profile") == "transparent"


def _is_emitted(records: Sequence[Record]) -> bool:
    """Return whether the proxy emitted an event stream of its own."""
    facts = as_object(keys_of(records, "request").get("facts"))
    return not _is_verbatim(records) and facts.get("stream") is not False


def _fault(records: Sequence[Record], commit: Record, end: Record | None, size: int) -> Fault | None:
    """Return how the response ended for the client; silence if the client left."""
    keys = end.keys if end is not None else NO_KEYS
    cause = keys.get("cause")
    if end is None or cause == "client_gone":
        return Fault.STALL
    if keys.get("answer") in ("whole", "broken"):
        whole = keys["answer"] == "whole"
    # A tape from before the key `answer`, or an imported one.
    elif commit.raw is not None or _is_emitted(records) or (keys.get("framed") is True and cause in ("eof", "limit")):
        whole = True
    elif cause == "eof":  # only the dialect tells whether it is complete
        whole = keys.get("broke", "closed") == "closed" and keys.get("ending") in ("completed", "upstream_error")
    else:
        short = cause == "closed" and _is_verbatim(records) and size < (_promised(records) or 0)
        whole = isinstance(cause, str) and cause in WHOLE and not short
    return None if whole else Fault.CUT


def _headers(records: Sequence[Record], commit: Record, size: int, fault: Fault | None) -> list[tuple[bytes, bytes]]:
    """Return the headers that the proxy wrote, as far as the tape has those of the upstream."""
    id_, status = str(records[0].keys.get("stream", "")), status_of(commit.keys)
    stream, upstream = id_ if id_.isascii() and id_.isprintable() else "", headers_to_send(head_of(records))
    length: int | None = size
    if commit.raw is not None:
        headers = [*wrapped_error(status, upstream, commit.raw).headers, (b"x-wiretape-stream", stream.encode())]
    elif _is_emitted(records):
        headers, length = list(stream_head(upstream, stream).headers), None
    else:
        headers = list(relayed_head(status, upstream, stream).headers)
        promised = _promised(records)
        if promised is None or keys_of(records, "request").get("method") == "HEAD":
            length = promised
        elif fault is not None:
            length = max(promised, size + 1)
    dropped = {b"content-length", *([] if stream else [b"x-wiretape-stream"])}
    kept = [(name, value) for name, value in headers if name not in dropped]
    return kept if length is None else [*kept, (b"content-length", b"%d" % length)]


def _promised(records: Sequence[Record]) -> int | None:
    """Return the content length of a relayed head."""
    head = head_of(records)
    length = head.get("length") if head.get("framing") == "length" and "decoded" not in head else None
    return length if type(length) is int else None
