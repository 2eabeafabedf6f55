"""What every failure case of an upstream shares: peers that fail, canaries in every secret, and the invariants

    async with faulty(Peer(role(), text("hi"), end="fin")) as home:
        answered = await home.ask()
        await judged(home, answered, "truncated")

`judged` asserts the exact ending and flags, and V1 to V4, V7, V9 and V10; leaving the house asserts V8. V5 and V6 are
figures and stand in test_upstream_limits.py.
"""

import hashlib
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from tests.proxy.scripted import Fake, Script
from tests.support.house import ASKED, House, Peer, answer, house
from tests.support.http import Answer
from wiretape.events.core.json_text import ABSENT, as_list, as_object, is_object, parse
from wiretape.events.core.lifecycle import State
from wiretape.events.core.settings import Settings
from wiretape.events.emission.words import KEEPALIVE
from wiretape.events.emit import Emitter, summarise
from wiretape.events.folds.wire import Call
from wiretape.events.tape.record import Record, encode
from wiretape.events.wire.sse import Decoder
from wiretape.proxy.config.model import Secret, Target

UPSTREAM_KEY: Final = "sk-canary-of-the-upstream-0001"
CALLER_KEY: Final = "sk-canary-of-the-caller-0002"
#: A request for a whole answer.
PLAIN: Final[Mapping[str, Any]] = {**ASKED, "stream": False}
#: The tool of the calls here.
TOOL: Final = "write_file"


def says_error(status: int, message: str = "no", *headers: str) -> Peer:
    """An error as OpenAI says it."""
    return answer(status, b'{"error":{"message":"%b","type":"t","code":"c"}}' % message.encode(), *headers)


class Fed(Fake):
    """Our end of a connection whose peer costs nothing: each read brings the next of these pieces, as of a socket."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        del max_bytes
        await trio.lowlevel.checkpoint()
        return next(self._pieces, b"")


def connecting(home: House, open_tcp: Any, context: ssl.SSLContext | None = None) -> None:
    """From now on the transport connects like this."""
    transport: Any = home.transport
    transport._connector._open_tcp = open_tcp
    if context is not None:
        transport._connector._context = context


def each_its_own(home: House) -> None:
    """From now on no connection is used again, so that each request meets the next script."""
    pool: Any = home.transport.pool
    pool._idle_max = 0


@asynccontextmanager
async def faulty(
    *scripts: Script, settings: Settings | None = None, url: str = "http://127.0.0.1:9/v1", **how: Any
) -> AsyncGenerator[House]:
    """A house whose upstream has a key of ours, and whose caller presents one that must go nowhere."""
    targets: Sequence[Target] = how.pop("targets", None) or [Target(name="upstream", url=url, key=Secret(UPSTREAM_KEY))]
    async with house(*(scripts or (Peer(),)), settings=settings, targets=targets, **how) as home:
        ask = home.ask

        async def with_canary(body: Any = ASKED, *headers: str, **more: Any) -> Answer:
            return await ask(body, f"Authorization: Bearer {CALLER_KEY}", *headers, **more)

        changed: Any = home
        changed.ask = with_canary
        yield home


def received(tape: Sequence[Record]) -> bytes:
    """What the last attempt brought, as the tape has it."""
    last = max((record.n for record in tape if record.kind == "attempt"), default=0)
    kinds = ("frame", "rest", "body")
    return b"".join(record.raw or b"" for record in tape if record.n > last and record.kind in kinds)


def sent_payloads(answered: Answer) -> list[Any]:
    """Of each frame that a client got: its JSON, or its text."""
    decoder = Decoder()
    found: list[Any] = []
    for frame in decoder.feed(answered.body) if answered.body else []:
        if frame.payload is not None:
            value = parse(frame.payload)
            found.append(frame.payload.decode("utf-8", "replace") if value is ABSENT else value)
    return found


def error_of(answered: Answer) -> dict[str, Any]:
    """The error object that the client got: as its answer, or as the last frame of its stream."""
    value: Any = parse(answered.body)
    if value is ABSENT:
        value = sent_payloads(answered)[-1]
    error = as_object(value).get("error")
    assert is_object(error), f"no error: {answered.body!r}"
    return error


class Judged:
    """What was seen of one stream."""

    def __init__(self, tape: list[Record], attempts: list[Record], failed: list[Record]) -> None:
        self.tape = tape
        self.attempts = attempts
        self.failed = failed

    @property
    def end(self) -> Mapping[str, Any]:
        return self.tape[-1].keys

    @property
    def commits(self) -> list[int]:
        """The status that the client was given."""
        return [record.keys["status"] for record in self.tape if record.kind == "commit"]


async def judged(
    home: House,
    answered: Answer | None,
    ending: str,
    *flags: str,
    came: bytes | None = None,
    stream: str | None = None,
) -> Judged:
    """The ending and the flags are exactly these, and what must hold in every case does."""
    await home.settled()
    tape = await home.tape(stream)
    end = tape[-1].keys
    assert (end.get("ending"), sorted(end.get("flags", ()))) == (ending, sorted(flags)), f"V1: {dict(end)}"
    assert [record.kind for record in tape].count("end") == 1, "V1"
    settings = Settings.of(tape[0].keys)
    chat = tape[0].keys["dialect"] == "chat"
    _received(tape, came)
    if chat:
        _attempts(tape)
        calls = _calls(tape)
        if answered is not None and settings.profile == "strict" and _streamed(answered):
            _nothing_supplied(tape, answered, settings, ending)
            _calls_told(answered, calls, settings, ending)
    _secrets(home, tape, answered)
    await _baseline(home)
    attempts = [record for record in tape if record.kind == "attempt"]
    return Judged(tape, attempts, [record for record in tape if record.kind == "failed"])


def _streamed(answered: Answer) -> bool:
    return (answered.header(b"content-type") or b"").startswith(b"text/event-stream")


def _received(tape: Sequence[Record], came: bytes | None) -> None:
    """V3, and that the checksum in `end` is of these very bytes."""
    taped, end = received(tape), tape[-1].keys
    if came is not None:
        assert taped == came, f"V3: {taped[-200:]!r} is on the tape, {came[-200:]!r} came"
    assert end["bytes"] == len(taped), "V3: the count in `end`"
    assert end["sha256"] == hashlib.sha256(taped).hexdigest(), "V3: the checksum in `end`"


def _attempts(tape: Sequence[Record]) -> None:
    """V9."""
    emitter, shown = Emitter(), 0
    for record in tape:
        assert not (shown and record.kind == "attempt"), "V9: another attempt behind what was delivered"
        shown += sum(len(frame) for frame in emitter.feed(record) if frame != KEEPALIVE)


def _calls(tape: Sequence[Record]) -> list[Call]:
    """V10 on the tape."""
    calls = list(summarise(tape).wire.calls())
    for call in calls:
        assert call.state in (State.RUNNING, State.DROPPED, State.MALFORMED), f"V10: {call.name} is {call.state}"
    return calls


def _calls_told(answered: Answer, calls: Sequence[Call], settings: Settings, ending: str) -> None:
    """V10 and L7 on the wire."""
    told: dict[str, list[str]] = {}
    for value in sent_payloads(answered):
        if is_object(value) and "toolCallId" in value:
            told.setdefault(str(value["toolCallId"]), []).append(str(value["status"]))
    for call in calls:
        said = told.get(call.id, [])
        if call.name.startswith("_") or not call.name or not settings.tool_events:
            assert not said, "L7: nothing is told of an internal tool"
        elif call.state is State.RUNNING:
            assert said == ["running"], f"L7: {said}"
        else:
            assert said == ["dropped"], f"V10: {said}"
            assert call.name.encode() in answered.body, "V10: the warning names the tool"
    assert len(told) <= len(calls), f"L7: told of calls that nobody made: {told}"


def _finishes(values: Sequence[Any]) -> Counter[str]:
    choices = [choice for value in values for choice in as_list(as_object(value).get("choices"))]
    return Counter(str(reason) for choice in choices if (reason := as_object(choice).get("finish_reason")))


def _nothing_supplied(tape: Sequence[Record], answered: Answer, settings: Settings, ending: str) -> None:
    """V2."""
    sent = sent_payloads(answered)
    last = max((record.n for record in tape if record.kind == "attempt"), default=0)
    came: list[Any] = [
        parse(record.frame().payload or b"") for record in tape if record.kind == "frame" and record.n > last
    ]
    body = parse(b"".join(record.raw or b"" for record in tape if record.kind == "body" and record.n > last))
    more = _finishes(sent) - _finishes([*came, body])
    usage = [value for value in sent if as_object(value).get("usage")]
    assert not usage or any(as_object(value).get("usage") for value in [*came, body]), "V2: usage was made up"
    if ending == "completed":
        return
    warned = settings.on_partial == "warn" and ending != "upstream_error"
    assert set(more) <= ({"length"} if warned else set()), f"V2: {more} was made up for {ending}"
    assert ("[DONE]" in sent) == warned, f"V2: [DONE] for {ending}"


def _secrets(home: House, tape: Sequence[Record], answered: Answer | None) -> None:
    """V7."""
    places = {"the tape": b"".join(map(encode, tape)), "the log": repr(home.log).encode()}
    if answered is not None:
        places["the answer"] = answered.body + repr(answered.headers).encode()
    for name, data in places.items():
        for key in (UPSTREAM_KEY, CALLER_KEY):
            assert key.encode() not in data, f"V7: {key} in {name}"


async def _baseline(home: House) -> None:
    """V4."""
    with trio.move_on_after(2):
        while len(home.upstream.still_open) > len(home.transport.pool):  # noqa: ASYNC110
            await trio.sleep(0.05)
    assert len(home.upstream.still_open) <= len(home.transport.pool), "V4: an upstream connection is left after 2 s"
    assert not home.registry.live, "V4: a stream is left"
