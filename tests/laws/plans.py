"""One number is one run of the whole proxy, planned: upstreams and their faults, settings, clients and their ways"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from wiretape.events.core.settings import Settings

__all__ = ["FAULTS", "MANNERS", "Asker", "Follower", "Leave", "Piece", "Plan", "Reply", "planned", "reply"]

End = Literal["final", "fin", "rst", "stall"]
Leave = Literal["fin", "rst", "half"]

#: What an upstream does in one exchange, and how often.
FAULTS: Final = {
    "none": 34,
    "cut": 14,
    "cut inside a chunk": 6,
    "reset": 12,
    "stall": 8,
    "error frame": 6,
    "late data": 5,
    "silence": 4,
    "refused": 5,
    "no answer": 4,
    "status": 10,
    "whole": 4,
    "page": 3,
    "garbage": 3,
}
#: What a client does, and how often.
MANNERS: Final = {"fast": 40, "slow": 14, "stuck": 10, "fin": 14, "rst": 12, "half": 4, "behind": 6}


@dataclass(frozen=True, slots=True)
class Piece:
    """One write of an upstream: after a pause these bytes, which hold this part of the body."""

    after_s: float
    wire: bytes
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an upstream does with one request. `refused`: the next connection finds no listener."""

    fault: str
    before_s: float = 0.0
    head: bytes = b""
    pieces: Sequence[Piece] = ()
    end: End = "final"

    @property
    def body(self) -> bytes:
        """Every byte that is sent."""
        return b"".join(piece.body for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Follower:
    """Joins so long after the stream began, and in each visit but the last leaves after so many seconds."""

    join_s: float
    visits: Sequence[float]
    leave: Leave
    capacity: int | None
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """One client, its request, and all replies that its attempts meet (the last one again and again)."""

    at_s: float
    body: dict[str, Any]
    headers: Sequence[str]
    manner: str
    #: When it leaves, or stops reading for a while.
    moment_s: float
    pause_s: float
    capacity: int | None
    replies: Sequence[Reply]
    followers: Sequence[Follower]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run."""

    seed: int
    settings: Settings
    route: dict[str, Any]
    askers: Sequence[Asker]
    #: Of the bytes that wait for one client; the real one is far above what these streams hold.
    window: int
    stream_bytes_max: int
    #: A write of a tape that fails: the how manieth of the run, and whether all later ones of that tape do.
    failing_write: tuple[int, bool] | None
    #: When the proxy is stopped, and how long it drains.
    shutdown: tuple[float, float] | None
    #: Of each write of a tape.
    write_s: float
    tags: dict[str, None] = field(default_factory=dict[str, None])


def planned(seed: int) -> Plan:
    """The plan of this number, always the same."""
    chance = random.Random(seed)  # noqa: S311 - the seed is the point
    transparent = chance.random() < 0.1
    settings = Settings(
        profile="transparent" if transparent else "strict",
        on_partial=chance.choice(["error", "error", "warn", "both"]),
        tools=chance.choice(["live", "live", "held"]),
        tool_events=chance.random() < 0.9,
        reasoning=chance.choice(["reasoning_content", "reasoning", "as_is"]),
    )
    route = {
        "attempts": chance.choice([1, 2, 3, 3]),
        "idle_s": chance.choice([5.0, 30.0, 300.0]),
        "first_byte_s": chance.choice([10.0, 60.0]),
        "keepalive_s": chance.choice([0.5, 2.0, 15.0]),
        "finish_grace_s": chance.choice([0.5, 2.0]),
        "on_client_gone": chance.choice(["cancel", "cancel", "drain", "keep"]),
        "drain_s": chance.choice([1.0, 30.0]),
        "keep_s": chance.choice([2.0, 60.0]),
        "include_usage": chance.random() < 0.2,
    }
    route["hermes"] = random.Random(f"{seed} hermes").random() < 0.3  # noqa: S311 - leaves the other draws as they were
    askers = [_asker(chance, number) for number in range(chance.choice([1, 1, 1, 2, 3]))]
    failing = (chance.randrange(2, 30), chance.random() < 0.5) if chance.random() < 0.09 else None
    return Plan(
        seed=seed,
        settings=settings,
        route=route,
        askers=askers,
        window=chance.choice([300, 2_000, 512 * 1024]),
        stream_bytes_max=chance.choice([1_500, 4_000]) if chance.random() < 0.06 else 256 * 1024 * 1024,
        failing_write=failing,
        shutdown=(chance.uniform(0, 8), chance.choice([0, 1, 30])) if chance.random() < 0.08 else None,
        write_s=chance.choice([0, 0, 0.001, 0.3]),
    )


# -- clients ----------------------------------------------------------------------------------------------------------


def _asker(chance: random.Random, number: int) -> Asker:
    manner = _one_of(chance, MANNERS)
    choices = chance.choice([1, 1, 1, 2])
    streams = chance.random() < 0.92
    body: dict[str, Any] = {"model": "m", "stream": streams, "user": f"a{number}", "messages": []}
    if choices > 1:
        body["n"] = choices
    if chance.random() < 0.3:
        body["stream_options"] = {"include_usage": True}
    headers = [
        f"{name}: {chance.choice(words)}"
        for name, words in (
            ("X-Wiretape-On-Partial", ["error", "warn", "both"]),
            ("X-Wiretape-Tools", ["live", "held"]),
            ("X-Wiretape-Tool-Events", ["off"]),
            ("X-Wiretape-Resume", ["on"]),
        )
        if chance.random() < 0.15
    ]
    reply_of = reply if streams else _plain
    asker = Asker(
        at_s=chance.choice([0.0, 0.0, chance.uniform(0, 3)]),
        body=body,
        headers=headers,
        manner=manner,
        moment_s=chance.choice([chance.uniform(0, 0.05), chance.uniform(0, 2), chance.uniform(0, 20)]),
        pause_s=chance.choice([0.2, 3, 25, 45]) if manner == "stuck" else chance.uniform(0.01, 1.5),
        capacity=chance.choice([64, 500, 4_000]) if manner in ("slow", "stuck", "behind") else None,
        replies=[reply_of(chance, choices) for _ in range(chance.choice([1, 2, 4]))],
        followers=[_follower(chance) for _ in range(chance.choice([0, 0, 1, 1, 2]))],
    )
    # Some that leave do so within a piece of which their socket has taken a part.
    return replace(asker, capacity=64) if manner in ("fin", "rst", "half") and asker.pause_s < 0.75 else asker


def _follower(chance: random.Random) -> Follower:
    visits = [chance.choice([0.0, 0.3, 2.0, 16.0]) for _ in range(chance.choice([0, 0, 1, 3]))]
    leave: Leave = chance.choice(["fin", "rst", "half"])
    slow = chance.random() < 0.3
    return Follower(
        chance.choice([0.0, chance.uniform(0, 1), chance.uniform(0, 30)]),
        visits,
        leave,
        chance.choice([64, 900]) if slow else None,
        chance.uniform(0.01, 0.5) if slow else 0.0,
    )


# -- upstreams --------------------------------------------------------------------------------------------------------


def _one_of(chance: random.Random, words: dict[str, int]) -> str:
    return chance.choices([*words], [*words.values()])[0]


def _pause(chance: random.Random) -> float:
    return chance.choices(
        [0.0, chance.uniform(0, 0.2), chance.uniform(0.2, 3), chance.uniform(3, 20)], [50, 30, 15, 3]
    )[0]


def reply(chance: random.Random, choices: int) -> Reply:
    fault = _one_of(chance, FAULTS)
    before_s = chance.choice([0.0, 0.0, chance.uniform(0, 1), chance.uniform(1, 9)])
    if fault in ("refused", "no answer"):
        return Reply(fault=fault, before_s=before_s, end=chance.choice(["fin", "rst"]))
    if fault == "silence":
        return Reply(fault=fault, end="stall")
    if fault in ("status", "whole", "page", "garbage"):
        return _other(chance, fault, before_s)
    return _stream(chance, fault, before_s, choices)


def _plain(chance: random.Random, choices: int) -> Reply:
    """Whole answers were asked for."""
    fault = chance.choice(["none", "none", "status", "cut", "reset", "refused", "silence"])
    if fault in ("refused", "silence"):
        return Reply(fault=fault, end="stall")
    if fault == "status":
        return _other(chance, fault, 0.0)
    body = _whole(chance)
    kept = chance.randrange(len(body)) if fault in ("cut", "reset") else len(body)
    end: End = {"cut": "fin", "reset": "rst"}.get(fault, "final")  # type: ignore[assignment]
    pieces = [Piece(_pause(chance), part, part) for part in _split(chance, body[:kept], 3)]
    return Reply(fault=fault, head=_head(200, "application/json", length=len(body)), pieces=pieces, end=end)


def _other(chance: random.Random, fault: str, before_s: float) -> Reply:
    status, kind, body, extra = 200, "application/json", _whole(chance), ""
    if fault == "status":
        status = chance.choice([400, 401, 404, 408, 409, 429, 429, 500, 502, 503, 529])
        body = json.dumps({"error": {"message": "no", "type": "t", "code": str(status)}}).encode()
        extra = f"Retry-After: {chance.randrange(0, 4)}\r\n" if chance.random() < 0.4 else ""
    elif fault == "page":
        kind, body = "text/html", b"<!doctype html><title>502</title>"
    elif fault == "garbage":
        wire = chance.choice([b"HTTP/1.1 200 OK\r\nno header\r\n\r\n", b"\x16\x03\x01\x02\x00", b"SSH-2.0-x\r\n\r\n"])
        return Reply(fault=fault, before_s=before_s, head=wire, end="fin")
    pieces = [Piece(_pause(chance), part, part) for part in _split(chance, body, 2)]
    return Reply(fault=fault, before_s=before_s, head=_head(status, kind, length=len(body), extra=extra), pieces=pieces)


def _head(status: int, kind: str, *, length: int | None = None, chunked: bool = False, extra: str = "") -> bytes:
    framing = (
        "Transfer-Encoding: chunked\r\n" if chunked else f"Content-Length: {length}\r\n" if length is not None else ""
    )
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{extra}{framing}\r\n".encode()


def _stream(chance: random.Random, fault: str, before_s: float, choices: int) -> Reply:
    body = b"".join(_ran(_frames(chance, choices, fault)))
    framing = chance.choice(["chunked", "chunked", "chunked", "close", "length"])
    if fault == "cut inside a chunk":
        framing = "chunked"
    kept = body if fault in ("none", "error frame", "late data") else body[: chance.randrange(len(body) + 1)]
    pieces: list[Piece] = []
    for part in _split(chance, kept, chance.choice([1, 4, 12, 40])):
        wire = b"%x\r\n%b\r\n" % (len(part), part) if framing == "chunked" else part
        if chance.random() < 0.1 and len(wire) > 1:  # one chunk in two writes
            at = chance.randrange(1, len(wire))
            inside = wire[:at].partition(b"\r\n")[2][: len(part)] if framing == "chunked" else part[:at]
            pieces += [
                Piece(_pause(chance), wire[:at], inside),
                Piece(_pause(chance), wire[at:], part[len(inside) :]),
            ]
        else:
            pieces.append(Piece(_pause(chance), wire, part))
    if fault == "cut inside a chunk":
        torn = chance.choice([b"1", b"5\r", b"5\r\n", b"ff\r\n: x", b"0\r\n"])
        pieces.append(Piece(0.0, torn, torn.partition(b"\r\n")[2] if torn[:1] != b"0" else b""))
    if framing == "chunked" and fault in ("none", "error frame", "late data"):
        pieces.append(Piece(_pause(chance), b"0\r\n\r\n", b""))
    ends: dict[str, End] = {
        "cut": "fin",
        "cut inside a chunk": chance.choice(["fin", "rst"]),
        "reset": "rst",
        "stall": "stall",
    }
    end = ends.get(fault, "fin" if framing == "close" else "final")
    head = _head(
        200, "text/event-stream", length=len(body) if framing == "length" else None, chunked=framing == "chunked"
    )
    return Reply(fault=fault, before_s=before_s, head=head, pieces=pieces, end=end)


def _split(chance: random.Random, body: bytes, parts: int) -> list[bytes]:
    """At random places."""
    if not body:
        return []
    cuts = sorted({chance.randrange(1, len(body)) for _ in range(parts - 1)}) if len(body) > 1 else []
    return [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]


# -- frames -----------------------------------------------------------------------------------------------------------

_WORDS: Final = ["Hello", " wörld", "\n\n", "⏺ ", "🦊", ' "quoted"', "{", "data: x", "\u2028", "lorem ipsum " * 20]
_TOOLS: Final = ["write_file", "get_weather", "read"]
_NOISE: Final = [
    b": ping\n\n",
    b"event: ping\n\n",
    b"data: \n\n",
    b'data: {"type":"ping"}\n\n',
    b"data: not json\n\n",
    b"retry: 10\n\n",
    b"\n",
    b'data: {"choices":[],"prompt_filter_results":[]}\n\n',
]


def _frame(chance: random.Random, choice: int, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    value = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": choice, "delta": delta, "finish_reason": finish}],
        **more,
    }
    data = json.dumps(value, ensure_ascii=chance.random() < 0.5)
    form = chance.choices(["data: {}\n\n", "data: {}\r\n\r\n", "data:{}\n\n", "id: 7\ndata: {}\n\n"], [90, 5, 4, 1])[0]
    return form.replace("{}", data).encode()


def _call(chance: random.Random, choice: int, number: int) -> list[bytes]:
    name = chance.choice(_TOOLS)
    arguments = json.dumps({"path": chance.choice(_WORDS), "n": number})
    if chance.random() < 0.06:
        arguments = arguments[:-1]  # which the protocol calls whole, and is no JSON
    first = {"index": number, "id": f"call_{choice}_{number}", "type": "function"}
    parts = [part.decode("utf-8") for part in _split_text(chance, arguments)]
    head = {**first, "function": {"name": name, "arguments": ""}}
    return [
        _frame(chance, choice, {"tool_calls": [head]}),
        *(
            _frame(chance, choice, {"tool_calls": [{"index": number, "function": {"arguments": part}}]})
            for part in parts
        ),
    ]


def _split_text(chance: random.Random, text: str) -> list[bytes]:
    size = chance.choice([3, 11, 200])
    return [text[at : at + size].encode() for at in range(0, len(text), size)]


def _ran(frames: list[bytes]) -> list[bytes]:
    """In one stream of five the frames of an agent that runs tools; drawn apart, so that all other streams stay."""
    chance = random.Random(b"".join(frames))  # noqa: S311 - the frames are the seed
    if chance.random() < 0.2:
        for _ in range(chance.choice([1, 2, 3, 5])):
            said = {
                "toolCallId": chance.choice(["ran", "ran", "call_0_0"]),
                "tool": chance.choice(["ls", "ls", "_plan"]),
            }
            said["status"] = chance.choice(["running", "completed", "failed"])
            frame = b"event: hermes.tool.progress\ndata: %b\n\n" % json.dumps(said).encode()
            frames.insert(chance.randrange(len(frames) + 1), frame)
    return frames


def _whole(chance: random.Random) -> bytes:
    message = {"role": "assistant", "content": "".join(chance.choices(_WORDS, k=3))}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    value = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps(value).encode()


def _frames(chance: random.Random, choices: int, fault: str) -> list[bytes]:
    frames: list[bytes] = []
    finishes: list[bytes] = []
    for choice in range(choices):
        if chance.random() < 0.8:
            frames.append(_frame(chance, choice, {"role": "assistant", "content": ""}))
        body: list[bytes] = []
        for _ in range(chance.choice([0, 1, 2])):
            body.append(_frame(chance, choice, {"reasoning_content": chance.choice(_WORDS)}))  # noqa: PERF401 - plain
        for _ in range(chance.choice([0, 1, 4, 15])):
            word = chance.choice(_WORDS)
            role = {"role": "assistant"} if chance.random() < 0.3 else {}
            body.append(_frame(chance, choice, {**role, "content": word}))
        calls = chance.choice([0, 0, 1, 1, 2])
        for number in range(calls):
            body += _call(chance, choice, number)
        frames += body
        reason = "tool_calls" if calls else "stop"
        reason = chance.choices([reason, "length", "content_filter"], [90, 7, 3])[0]
        finishes.append(_frame(chance, choice, {}, reason))
    for _ in range(chance.choice([0, 0, 1, 3])):
        frames.insert(chance.randrange(len(frames) + 1), chance.choice(_NOISE))
    frames += [finish for finish in finishes if chance.random() < 0.94]
    if chance.random() < 0.4:
        frames.append(_frame(chance, 0, {}, choices=[], usage={"prompt_tokens": 1, "total_tokens": 3}))
    if chance.random() < 0.85:
        frames.append(b"data: [DONE]\n\n")
    if fault == "error frame":
        said = {"error": {"message": "overloaded", "type": "server_error", "code": chance.choice([529, 503, 400])}}
        frames.insert(chance.randrange(len(frames) + 1), b"data: %b\n\n" % json.dumps(said).encode())
    if fault == "late data":
        frames += [b"data: [DONE]\n\n", _frame(chance, 0, {"content": "late"}), b": bye\n\n", b"data: [DONE]\n\n"]
    return frames
