"""An independent checker: one tape and what one client read from its socket, held against each other (V1 to V3, V8)

    python -m tests.laws.checker TAPE TRANSCRIPT     # the transcript is the answer as it came, head and chunks included

It imports nothing of Wiretape: its own JSON Lines, SSE and HTTP, by the standard library's json. So what it says does
not hang on the parsers that it judges. It reads meaning, not bytes: text, reasoning, calls, finishes, usage and errors
of each side; that emission equals the client's bytes exactly is asserted where `emit` is at hand.
"""

import base64
import hashlib
import itertools
import json
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from tests.laws.said import DIALECTS, Said, payloads, said

__all__ = ["Line", "Transcript", "check", "lines_of", "transcript_of"]

_SOFT: Final = {"completed", "truncated", "reset", "stalled", "upstream_error", "refused", "protocol", "limit"}
ENDINGS: Final = _SOFT | {"client_gone", "shutdown", "crashed", "internal"}
_RECEIVED: Final = ("frame", "body", "rest")


class Line(NamedTuple):
    """One record."""

    n: int
    t: int
    kind: str
    keys: dict[str, Any]
    raw: bytes | None


class Transcript(NamedTuple):
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    #: By its last chunk or its length.
    whole: bool


# -- reading ----------------------------------------------------------------------------------------------------------


def lines_of(tape: bytes) -> tuple[list[Line], list[str]]:
    """The records, and what is wrong with them."""
    lines: list[Line] = []
    wrong: list[str] = []
    *whole, torn = tape.split(b"\n")
    if torn:
        wrong.append(f"V1: {len(torn)} bytes behind the last line")
    for number, line in enumerate(whole):
        body = line[16:]
        if line[:6] != b'{"c":"' or line[6:14] != b"%08x" % zlib.crc32(body):
            wrong.append(f"line {number}: its checksum does not match")
            continue
        lines.append(_line(line))
    if [line.n for line in lines] != list(range(len(whole))):
        wrong.append("numbers have gaps")
    if any(one.t > two.t for one, two in itertools.pairwise(lines)):
        wrong.append("time goes backwards")
    return lines, wrong


def _line(line: bytes) -> Line:
    keys: dict[str, Any] = json.loads(line)
    raw: bytes | None = None
    if "data" in keys:
        raw = line[line.index(b',"data":') + 8 : -1]
        if keys["k"] == "frame":
            before, after = keys.get("sse", ["data: ", "\n\n"])
            before = f"event: {keys['event']}\n{before}" if "event" in keys else before
            raw = before.encode() + raw + after.encode()
    elif "raw" in keys:
        raw = keys["raw"].encode()
    elif "b64" in keys:
        raw = base64.b64decode(keys["b64"])
    return Line(keys["n"], keys["t"], keys["k"], keys, raw)


def transcript_of(raw: bytes) -> Transcript | None:
    """The last answer with a head in all that a client read, as far as its chunks came whole."""
    head, mark, rest = raw.partition(b"\r\n\r\n")
    if not mark:
        return None
    first, *fields = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    status = int(first.split(" ")[1])
    if status < 200:
        return transcript_of(rest)
    if headers.get("transfer-encoding", "").lower() != "chunked":
        length = int(headers["content-length"]) if "content-length" in headers else None
        return Transcript(status, headers, rest[:length], length is not None and len(rest) >= length)
    body, whole = b"", False
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        count = int(size.split(b";")[0], 16)
        if not count:
            whole = True
            break
        body += rest[:count]
        rest = rest[count + 2 :]
    return Transcript(status, headers, body, whole)


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


# -- judging ----------------------------------------------------------------------------------------------------------


def check(tape: bytes, transcript: bytes, *, sent: bytes | None = None, left: bool = False) -> list[str]:
    """What is wrong; nothing where the list is empty. `sent`: the body that the upstream sent in the attempt that was
    the last. `left`: the client went of its own will, or took nothing, so that its answer need not be whole.
    """
    lines, wrong = lines_of(tape)
    if not lines:
        return [*wrong, "there is no record"]
    unended = _ending(lines)
    if unended:
        return [*wrong, *unended]
    wrong += _received(lines, sent)
    answer = transcript_of(transcript)
    if answer is None or answer.headers.get("x-wiretape-stream") != lines[0].keys.get("stream"):
        return wrong if left or not lines or answer is None else [*wrong, "the answer is another stream's"]
    committed = [line.keys["status"] for line in lines if line.kind == "commit"]
    if committed != [answer.status]:
        wrong.append(f"L6: the client has the status {answer.status}, the tape {committed}")
    return [*wrong, *_delivered(lines, answer, left=left)]


def _ending(lines: Sequence[Line]) -> list[str]:
    """V1 on the tape."""
    ends = [line for line in lines if line.kind == "end"]
    if len(ends) != 1 or lines[-1].kind != "end":
        return [f"V1: {len(ends)} endings, and the last record is {lines[-1].kind}"]
    return [] if ends[0].keys["ending"] in ENDINGS else [f"V1: {ends[0].keys['ending']} is no ending"]


def _last_attempt(lines: Sequence[Line]) -> list[Line]:
    begun = max((line.n for line in lines if line.kind == "attempt"), default=0)
    return [line for line in lines if line.n >= begun]


def _received(lines: Sequence[Line], sent: bytes | None) -> list[str]:
    """V3 on the tape: all that came is there, and `end` says how much it was."""
    last = _last_attempt(lines)
    got = b"".join(line.raw or b"" for line in last if line.kind in _RECEIVED)
    wrong: list[str] = []
    end = lines[-1].keys
    if (end["bytes"], end["sha256"]) != (len(got), hashlib.sha256(got).hexdigest()):
        wrong.append(f"V3: end counts {end['bytes']} bytes, the tape has {len(got)}")
    if sent is not None:
        all_of_it = end.get("cause") in ("eof", "reset", "framed")  # else we left, and more may have come
        if got != sent[: len(got)] or (all_of_it and got != sent):
            wrong.append(f"V3: of {len(sent)} bytes that the upstream sent, the tape has {len(got)} (or others)")
    return wrong


def _delivered(lines: Sequence[Line], answer: Transcript, *, left: bool) -> list[str]:
    """What the client got against what the tape holds."""
    whole_answer = next((line for line in lines if line.kind == "commit" and line.raw), None)
    last = _last_attempt(lines)
    opened, end = lines[0].keys, lines[-1].keys
    facts = _object(next((line.keys.get("facts") for line in lines if line.kind == "request"), None))
    came = b"".join(line.raw or b"" for line in last if line.kind in _RECEIVED)
    if whole_answer is not None:
        came = whole_answer.raw or b""
    dialect = opened.get("dialect")
    if whole_answer is not None or opened.get("profile") == "transparent" or dialect not in DIALECTS:
        return [] if came.startswith(answer.body) and (answer.body == came or not answer.whole) else ["V8: other bytes"]
    if facts.get("stream") is False:
        return [] if came.startswith(answer.body) else ["V8: a plain answer has other bytes"]
    theirs = next((line.keys.get("dialect", dialect) for line in last if line.kind == "attempt"), dialect)
    wire = said(payloads(answer.body), dialect)
    if any(line.kind == "body" for line in last):
        body = b"".join(line.raw or b"" for line in last if line.kind == "body").decode()
        upstream = said([("", body)]) if theirs == "chat" else Said(odd=True)
    else:
        pairs = (pair for line in last if line.kind in ("frame", "rest") for pair in payloads(_block(line)))
        upstream = said(pairs, theirs)
    due = said((pair for line in last if line.kind == "frame" for pair in payloads(_block(line))), theirs)
    on_partial = opened["settings"]["on_partial"]
    if end["ending"] == "completed" and not upstream.finishes and not upstream.done:
        return [f"L5: completed, and the upstream never said so ({end['cause']})"]
    if theirs != dialect:
        upstream, due = _crossed(upstream, wire), _crossed(due, wire)
    wrong = _meaning(wire, upstream, due, end, on_partial, left=left or not answer.whole)
    if answer.whole and not left:
        wrong += _closing(wire, end, on_partial)
    return wrong + _invented(wire, upstream, lines, on_partial)


def _crossed(came: Said, wire: Said) -> Said:
    """What came, as far as it crosses: its first choice, calls under the ids of the client, usage in its words."""
    keys = [*came.texts, *came.calls]
    first = keys[0][0] if keys else 0
    ours = [call_id for _, call_id in wire.calls]
    theirs = [call_id for choice, call_id in came.calls if choice == first]
    ids = {**{call_id: call_id for call_id in theirs}, **dict(zip(theirs, ours, strict=False))}
    came.texts = {(0, kind): text for (choice, kind), text in came.texts.items() if choice == first}
    came.calls = {(0, ids[call_id]): text for (choice, call_id), text in came.calls.items() if choice == first}
    came.usages = wire.usages
    return came


def _block(line: Line) -> bytes:
    """A last block without its blank line may count or not (`rest`)."""
    return (line.raw or b"") + (b"\n\n" if line.kind == "rest" else b"")


def _meaning(wire: Said, upstream: Said, due: Said, end: dict[str, Any], on_partial: str, *, left: bool) -> list[str]:
    """V3 and V8: in order, nothing else, and everything where the client stayed."""
    wrong: list[str] = []
    if wire.behind:
        wrong.append(f"V1: {wire.behind} frames behind the end")
    if upstream.odd:
        return wrong
    for place in wire.texts.keys() | upstream.texts.keys():
        got: str = wire.texts.get(place, "")
        came: str = upstream.texts.get(place, "")
        if on_partial in ("warn", "both") and got != came[: len(got)]:
            got = got.partition("⚠")[0].rstrip("\n")
        if got != came[: len(got)].rstrip("\n") and got != came[: len(got)]:
            wrong.append(f"V8: {place} is {got[-80:]!r}, the tape says {came[-80:]!r}")
        elif len(got.rstrip("\n")) < len(due.texts.get(place, "").rstrip("\n")) and not left:
            wrong.append(f"V3: {place} lacks {came[len(got) :][:80]!r}")
    for place, arguments in wire.calls.items():
        due_arguments = upstream.calls.get(place, "")
        at = f"arguments of {place} are {arguments!r}, the tape says {due_arguments!r}"
        if place not in upstream.calls:
            wrong.append(f"V8: nobody made the call {place}")
        elif not due_arguments.startswith(arguments) and not (arguments == "{}" and not due_arguments.strip()):
            wrong.append(f"V8: {at}")
        elif end["ending"] == "completed" and not left and not end["flags"] and arguments != due_arguments.strip():
            wrong += [f"V3: {at}"] if due_arguments.strip() else []
    return wrong


def _closing(wire: Said, end: dict[str, Any], on_partial: str) -> list[str]:
    """V1 on the wire: `[DONE]`, or one error; never both, never none."""
    ending, closed = end["ending"], (wire.done, len(wire.errors))
    if ending == "completed" and "malformed_call" not in end["flags"]:
        allowed = [(1, 0)]
    elif on_partial == "warn":
        allowed = [(1, 0), (0, 1)] if ending == "upstream_error" or "malformed_call" in end["flags"] else [(1, 0)]
    else:
        allowed = [(0, 1)]
    return [] if closed in allowed else [f"V1: {ending} was closed by {closed[0]} [DONE] and {closed[1]} errors"]


def _invented(wire: Said, upstream: Said, lines: Sequence[Line], on_partial: str) -> list[str]:
    """V2."""
    end = lines[-1].keys
    complete = end["ending"] == "completed"
    wrong: list[str] = []
    spare = Counter(wire.finishes) - Counter(upstream.finishes)
    if not complete and (set(spare) - ({"length"} if on_partial == "warn" else set())):
        wrong.append(f"V2: the finish {dict(spare)} is made up")
    if not complete and on_partial != "warn" and wire.done:
        wrong.append("V2: the [DONE] is made up")
    if any(usage not in upstream.usages for usage in wire.usages):
        wrong.append("V2: usage is made up")
    results = any(line.kind == "results" for line in lines)
    own = _ends(upstream) if _object(lines[0].keys["settings"]).get("hermes") else Counter[str]()
    if not results and not _ends(wire) <= own:
        wrong.append("V2: a tool result is made up")
    orders: dict[str, list[str]] = defaultdict(list)
    for call, status in wire.told:
        orders[call].append(status)
    wrong += [f"L7: {call} was told as {told}" for call, told in orders.items() if len(told) != len(set(told))]
    return wrong


def _ends(said: Said) -> Counter[str]:
    """How tools ended; by the upstream's own word where that runs them, whose ids may have been replaced."""
    return Counter(status for _, status in said.told if status in ("completed", "failed"))


def main() -> int:
    """One line for each thing that is wrong; 0 where nothing is."""
    tape, transcript = (Path(name).read_bytes() for name in sys.argv[1:3])
    wrong = check(tape, transcript)
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
