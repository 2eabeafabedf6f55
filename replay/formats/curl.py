"""What `curl -i` prints: the head of the answer and its body; with `--raw` each chunk is a read"""

import re
from dataclasses import replace
from typing import Any, Final

from wiretape.events.core.errors import TapeError
from wiretape.proxy.upstream.chunked import Dechunker
from wiretape.proxy.upstream.errors import ProtocolError

from .imported import Imported, Outcome, decoded, frames_of, guessed_target, in_frames, outcome
from .losses import Loss

__all__ = ["from_curl"]

_STATUS: Final = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})(?: [^\r\n]*)?\r?\n")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*?)[ \t]*\r?\n")
_LINE_END: Final = re.compile(rb"\r?\n")


def from_curl(data: bytes) -> Outcome:
    """One stream: the last head, and what is behind it."""
    at = status = 0
    headers: list[tuple[str, str]] = []
    while (found := _STATUS.match(data, at)) is not None:  # provisional ones, redirects, a proxy's
        status, headers, at = int(found[1]), [], found.end()
        while (header := _HEADER.match(data, at)) is not None:
            headers.append((header[1].decode("latin-1"), header[2].decode("latin-1")))
            at = header.end()
        end = _LINE_END.match(data, at)
        if end is None:
            raise TapeError(f"byte {at}: no header, and no blank line that ends them")
        at = end.end()
    if not status:
        raise TapeError("byte 0: no status line, with which `curl -i` begins")
    body, names = data[at:], {name.lower(): value for name, value in headers}
    known, losses = _framing(body, names)
    reads: list[tuple[int, bytes]] = known.pop("reads")
    plain = decoded(Imported(target="/", status=status, headers=headers, reads=reads, **known))
    if plain.decoded:
        plain = in_frames(plain)
        losses += ["coding"]
    one = replace(plain, target=guessed_target(b"".join(part for _, part in plain.reads)))
    losses += ["headers", "request", "time", "times"]
    return outcome("curl", data, [one], map(Loss, losses))


def _framing(body: bytes, names: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Reads, cause and framing, and what is not known of them."""
    length = names.get("content-length", "")
    if "chunked" in names.get("transfer-encoding", "").lower():
        parts, done = _dechunked(body)
        if parts is not None:
            framed = {"framed": True} if done else {"framed": False, "broke": "truncated"}
            reads = [(0, part) for part in parts]
            return {"reads": reads, "framing": {"framing": "chunked"}, "framed": framed, "cause": "eof"}, []
        return {"reads": frames_of(body), "framing": {"framing": "chunked"}}, ["boundaries", "ending"]
    if length.isdecimal() and len(length) < 16:
        whole = len(body) >= int(length)
        framed = {"framed": True} if whole else {"framed": False, "broke": "truncated"}
        framing = {"framing": "length", "length": int(length)}
        cause = "framed" if whole else "eof"
        return {"reads": frames_of(body), "framing": framing, "framed": framed, "cause": cause}, ["boundaries"]
    return {"reads": frames_of(body)}, ["boundaries", "ending"]


def _dechunked(body: bytes) -> tuple[list[bytes] | None, bool]:
    """The chunks, where curl left them as they were; and whether the last one is there."""
    dechunker = Dechunker()
    try:
        dechunker.feed(body)
    except ProtocolError:
        return None, False  # curl took the framing off, as it does unless told otherwise
    return [part for part in dechunker.parts if part], dechunker.done
