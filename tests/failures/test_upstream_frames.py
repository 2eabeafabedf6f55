"""Frames that are cut, odd, wrong or hostile: U27, U28, U32 to U50 and U61."""

from typing import Any, NamedTuple

import pytest
import trio
from trio.testing import MockClock

from tests.failures.judged import TOOL, Fed, connecting, each_its_own, faulty, judged, received, sent_payloads
from tests.laws.variants import FULL
from tests.proxy.scripted import opening
from tests.support.house import ASKED, DONE, HEAD, Peer, Watched, answer, call, finish, frame, role, text, usage
from wiretape.events.core.json_text import as_object
from wiretape.events.core.settings import Settings
from wiretape.events.emit import summarise
from wiretape.proxy.config.model import Target

STRICT, TRANSPARENT = Settings(), Settings(profile="transparent")
BOTH = pytest.mark.parametrize("settings", [STRICT, TRANSPARENT], ids=["strict", "transparent"])
WITH_USAGE = {**ASKED, "stream_options": {"include_usage": True}}
#: One of everything: text, a call in pieces, usage.
GOLDEN = b"".join(
    [
        role(),
        text("hé\u2028llo 🎉"),
        call("", TOOL),
        call('{"path":'),
        call('"/tmp/a"}'),
        finish("tool_calls"),
        usage(),
        DONE,
    ]
)


def raw(payload: bytes) -> bytes:
    return b"data: %b\n\n" % payload


def delta(inside: bytes, finish_reason: bytes = b"null") -> bytes:
    """A chunk whose delta is these bytes."""
    return raw(
        b'{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m",'
        b'"choices":[{"index":0,"delta":%b,"finish_reason":%b}]}' % (inside, finish_reason)
    )


def said(answered: Any) -> str:
    """The text that a client reads."""
    choices = [c for value in sent_payloads(answered) for c in as_object(value).get("choices", [])]
    return "".join(choice.get("delta", {}).get("content") or "" for choice in choices)


def statuses(answered: Any) -> list[str]:
    """Return the lifecycle frames that a client got."""
    return [value["status"] for value in sent_payloads(answered) if "status" in as_object(value)]


# -- cuts -------------------------------------------------------------------------------------------------------------


@pytest.mark.case("U27")
@BOTH
async def test_single_byte_reads_give_the_same_stream(settings: Settings, autojump_clock: MockClock) -> None:
    async with faulty(Peer(GOLDEN), settings=settings) as home:
        whole = (await home.ask(WITH_USAGE)).body
    async with faulty(Peer(*[bytes([byte]) for byte in GOLDEN]), settings=settings) as home:
        answered = await home.ask(WITH_USAGE)
        assert answered.body == whole
        seen = await judged(home, answered, "completed", came=GOLDEN)
        kinds = [record.kind for record in seen.tape]
        assert kinds.count("frame") == 8


@pytest.mark.case("U28")
@pytest.mark.slow
async def test_read_boundaries_change_nothing(autojump_clock: MockClock) -> None:
    """Every fifth byte in the default suite; tests/laws cut every golden stream in the core."""
    places = range(1, len(GOLDEN), 1 if FULL else 5)

    async def each(stream: trio.abc.Stream) -> None:
        place = places[len(home.streams) - 1]
        await Peer(GOLDEN[:place], GOLDEN[place:], head=HEAD)(stream)

    async with faulty(each) as home:
        each_its_own(home)
        bodies = set[bytes]()
        answered = None
        for _ in places:
            answered = await home.ask(WITH_USAGE)
            bodies.add(answered.body)
            assert received(await home.tape()) == GOLDEN
        assert len(bodies) == 1
        await judged(home, answered, "completed", came=GOLDEN)


@pytest.mark.case("U27")
@pytest.mark.slow
async def test_mebibyte_in_single_bytes_is_written_frame_by_frame() -> None:
    """An eighth in the default suite, the whole in `make failures` and `make laws`."""
    parts = 1 if FULL else 8
    body = role() + b"".join(text("x" * 800) for _ in range(1_152 // parts)) + finish() + DONE
    assert len(body) >= 1024 * 1024 // parts

    store = Watched()
    async with faulty(targets=[Target(name="without a key", url="http://127.0.0.1:9/v1")], store=store) as home:
        connecting(home, opening(Fed([HEAD, *(b"1\r\n%c\r\n" % byte for byte in body), b"0\r\n\r\n"])))
        answered = await home.ask()
        assert answered.body == body
        await judged(home, answered, "completed", came=body)
        assert len(store.writes) <= body.count(b"\n\n") + 3, "a read that completes no frame writes nothing"


# -- what passes and what does not ------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One stream: the reads, what a strict client gets (None: the same), and the flags of its end."""

    pieces: list[bytes]
    sent: bytes | None = None
    flags: tuple[str, ...] = ()


PLAIN = role() + text("a") + finish() + DONE
BEFORE, AFTER = role() + text("a"), text("b") + finish() + DONE
WHOLE = role() + text("a") + finish()


def sized(body: bytes, size: int) -> list[bytes]:
    """Cut a body into reads."""
    return [body[at : at + size] for at in range(0, len(body), size)]


def of(content: str) -> Case:
    """A stream whose text has these letters, escaped and as they are."""
    bare = content.translate(dict.fromkeys(range(32)))
    return Case([role() + text(content) + delta(f'{{"content":"{bare}"}}'.encode()) + finish() + DONE])


def odd(payload: bytes, flag: str) -> Case:
    """A frame in the middle that is no chunk."""
    return Case([BEFORE, raw(payload), AFTER], BEFORE + AFTER, (flag,))


def extra(members: bytes) -> Case:
    """A delta with unusual members."""
    return Case([BEFORE + delta(b'{"content":"b",%b}' % members) + finish() + DONE])


#: Each name begins with its failure case.
STREAMS: dict[str, Case] = {
    **{
        f"U32 {end!r} in reads of {size}": Case(sized(PLAIN.replace(b"\n", end), size), PLAIN)
        for end in (b"\r\n", b"\r", b"\n")
        for size in (1, 7, 10_000)
    },
    "U32 mixed line ends": Case(
        [(BEFORE + AFTER).replace(b"\n\n", b"\r\n\n", 1).replace(b"\n\n", b"\r\r", 1)], BEFORE + AFTER
    ),
    "U33 what others take for line ends": of("a\u2028b\u2029c\u0085d\u000be\u000cf"),
    "U36 control characters, escaped": of("\x00\x01\x1f\x7f"),
    "U34 a BOM later": of("\ufeff inside"),
    "U37 joined letters": of("👩\u200d👩\u200d👧 é\u0301"),
    "U34 a BOM at the start": Case([b"\xef\xbb\xbf" + PLAIN], PLAIN),
    "U35 invalid UTF-8": Case(
        [role() + delta(b'{"content":"a\xff\xfeb"}') + finish() + DONE],
        role() + delta('{"content":"a\ufffd\ufffdb"}'.encode()) + finish() + DONE,
    ),
    "U35 a read that splits a character": Case([role() + text("é🎉")[:-8], text("é🎉")[-8:] + finish() + DONE]),
    **{
        f"U36 {byte!r}": Case([BEFORE + delta(b'{"content":"%b"}' % byte) + AFTER], BEFORE + AFTER, ("not_json",))
        for byte in (b"\x00", b"\x01", b"\x1f")
    },
    "U37 surrogate halves": Case(
        [role() + delta(b'{"content":"a\\ud83d"}') + delta(b'{"content":"\\ude00b"}') + finish() + DONE]
    ),
    "U38 half an object": odd(b'{"id":"c1","choices":[', "not_json"),
    "U38 words": odd(b"hello", "not_json"),
    "U39 NaN": odd(b'{"choices":[{"index":0,"delta":{"content":NaN}}]}', "not_json"),
    "U39 depth 100,000": odd(b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not_json"),
    "U39 a list": odd(b"[1,2]", "foreign"),
    "U39 no choices": odd(b'{"hello":1}', "foreign"),
    "U39 an integer of 2^64 and more": extra(b'"n":18446744073709551617'),
    "U39 a key twice": extra(b'"n":1,"n":2'),
    "U39 depth 400": extra(b'"n":' + b"[" * 400 + b"]" * 400),
    "U39 a number beyond every float": extra(b'"n":1e999'),
    "U39 odd numbers": extra(b'"n":-0.0,"m":1E5'),
    "U40 a second terminator in one read": Case([PLAIN + DONE], PLAIN),
    "U40 a second terminator later": Case([PLAIN, DONE], PLAIN),
    **{
        f"U42 {done!r}": Case([WHOLE, done], PLAIN)
        for done in (b"data:[DONE]\n\n", b"data: [DONE]  \n\n", b"data:  [DONE] \r\n\r\n", b"data: [DONE]")
    },
    "U42 a terminator in lower case": Case([WHOLE, b"data: [done]\n\n"], PLAIN, ("no_done", "not_json")),
    "U48 usage inside a chunk": Case([role(), text("a"), frame({}, "stop", usage={"total_tokens": 3}), DONE]),
    "U50 unknown members": Case(
        [
            delta(
                b'{"role":"assistant","content":"","reasoning_content":"hm", "extra_content":{"google":{"s": 1.50}}}'
            ),
            frame({"content": "a", "x_unknown": {"b": [1, None]}}, system_fingerprint="fp", x_top={"y": 1}),
            text("b") + finish() + DONE,
        ]
    ),
}


@BOTH
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=pytest.mark.case(name[:3])) for name, case in STREAMS.items()]
)
async def test_stream_is_repaired_or_passes(case: Case, settings: Settings, autojump_clock: MockClock) -> None:
    came = b"".join(case.pieces)
    async with faulty(Peer(*case.pieces, every_s=0.01), settings=settings) as home:
        answered = await home.ask()
        assert answered.body == (came if case.sent is None or settings is TRANSPARENT else case.sent)
        seen = await judged(home, answered, "completed", *case.flags, came=came)
        if b"ud83d" in came:
            assert summarise(seen.tape).answer().text == "a😀b"


# -- terminators ------------------------------------------------------------------------------------------------------


@pytest.mark.case("U41")
@BOTH
@pytest.mark.parametrize("end", ["final", "stall"])
@pytest.mark.parametrize("late", [text("late"), usage(), call('{"a":1}', TOOL)], ids=["text", "usage", "a call"])
async def test_data_after_the_terminator_is_recorded_but_not_delivered(
    late: bytes, end: Any, settings: Settings, autojump_clock: MockClock
) -> None:
    whole = role() + text("a") + finish() + DONE
    async with faulty(Peer(whole, late, every_s=0.1, end=end), settings=settings) as home:
        answered = await home.ask()
        assert answered.body == (whole if settings is STRICT else whole + late)
        assert answered.ended_at <= 2 or (settings is not STRICT and end == "stall")  # then it is the upstream's own
        await judged(home, answered, "completed", "late_data", came=whole + late)


@pytest.mark.case("U41")
async def test_endless_upstream_is_closed_after_the_terminator(autojump_clock: MockClock) -> None:
    whole = role() + text("a") + finish() + DONE
    async with faulty(Peer(whole, *[text("late")] * 1_000, every_s=0.01)) as home:
        answered = await home.ask()
        assert answered.body == whole
        assert answered.ended_at <= 2
        await judged(home, answered, "completed", "late_data")
        assert len(home.transport.pool) == 0


# -- errors in the stream ---------------------------------------------------------------------------------------------

OVERLOADED = b'{"error":{"message":"overloaded","type":"server_error","code":529,"extra":{"a":18446744073709551617}}}'
LOST = b'{"error":{"message":"Network connection lost"}}'
INVALID = b'{"error":{"message":"bad image","type":"invalid_request_error","code":"invalid_image"}}'


@pytest.mark.case("U43")
@pytest.mark.parametrize(
    ("payload", "status", "attempts"),
    [(OVERLOADED, 529, 3), (LOST, 502, 3), (INVALID, 502, 1)],
    ids=["overloaded", "a lost connection", "the request's own fault"],
)
@pytest.mark.parametrize(
    "first", [(), (role(),), (b": hello\n\n", role(), usage())], ids=["first", "behind a role", "behind more"]
)
@pytest.mark.parametrize("event", [b"", b"event: error\n"], ids=["", "as an event"])
async def test_an_error_before_content_is_an_http_error(
    event: bytes, first: tuple[bytes, ...], payload: bytes, status: int, attempts: int, autojump_clock: MockClock
) -> None:
    async with faulty(peer := Peer(*first, event + raw(payload), end="stall")) as home:
        answered = await home.ask()
        assert (answered.status, answered.body) == (status, payload), "the upstream's own object"
        assert answered.header(b"content-type") == b"application/json"
        seen = await judged(home, answered, "upstream_error", came=peer.body)
        assert (len(peer.requests), len(seen.attempts)) == (attempts, attempts)
        assert answered.header(b"x-should-retry") == (b"false" if attempts == 3 else None)


@pytest.mark.case("U43")
@pytest.mark.parametrize("mode", ["error", "warn", "both"])
@pytest.mark.parametrize("payload", [OVERLOADED, LOST, INVALID], ids=["overloaded", "lost", "invalid"])
@pytest.mark.parametrize("event", [b"", b"event: error\n"], ids=["", "as an event"])
@pytest.mark.parametrize("tool", ["", TOOL], ids=["in a text", "in a call"])
async def test_error_after_content_is_relayed(
    tool: str, event: bytes, payload: bytes, mode: Any, autojump_clock: MockClock
) -> None:
    frames = [role(), text("so: "), *([call('{"a', tool)] if tool else [])]
    peer = Peer(*frames, event + raw(payload), every_s=1)
    async with faulty(peer, settings=Settings(on_partial=mode)) as home:
        answered = await home.ask()
        assert answered.body.endswith(raw(payload))
        assert statuses(answered) == (["dropped"] if tool else [])
        assert ("⚠" in said(answered)) == (bool(tool) and mode != "error")
        await judged(home, answered, "upstream_error", came=peer.body)
        assert len(peer.requests) == 1


@pytest.mark.case("U43")
async def test_an_error_as_a_whole_answer_is_an_error(autojump_clock: MockClock) -> None:
    async with faulty(peer := answer(200, INVALID)) as home:
        answered = await home.ask()
        assert (answered.status, answered.body) == (502, INVALID)
        await judged(home, answered, "upstream_error", came=INVALID)
        assert len(peer.requests) == 1


@pytest.mark.case("U43")
async def test_error_in_the_transparent_profile_passes_unchanged(autojump_clock: MockClock) -> None:
    async with faulty(peer := Peer(raw(OVERLOADED), DONE), settings=TRANSPARENT) as home:
        answered = await home.ask()
        assert (answered.status, answered.body) == (200, peer.body)
        seen = await judged(home, answered, "upstream_error", came=peer.body)
        assert len(seen.attempts) == 1


# -- finishes and calls -----------------------------------------------------------------------------------------------


@pytest.mark.case("U44")
async def test_the_first_finish_wins(autojump_clock: MockClock) -> None:
    peer = Peer(role(), text("a"), finish("stop"), finish("length"), text("b"), finish("tool_calls"), DONE)
    async with faulty(peer) as home:
        answered = await home.ask()
        values = [as_object(value) for value in sent_payloads(answered)]
        reasons = [c["finish_reason"] for value in values for c in value.get("choices", []) if c.get("finish_reason")]
        assert reasons == ["stop"]
        await judged(home, answered, "completed", "late_delta", came=peer.body)


def part(index: int | None, **entry: Any) -> bytes:
    """One entry of `tool_calls`."""
    function = {key: entry.pop(key) for key in ("name", "arguments") if key in entry}
    at = {} if index is None else {"index": index}
    return frame({"tool_calls": [{**at, **entry, "function": function}]})


TANGLED: dict[str, tuple[tuple[bytes, ...], dict[str, str]]] = {
    "gaps": (
        (part(3, id="x", name="a", arguments="{}"), part(9, id="y", name="b", arguments='{"b":1}')),
        {"a": "{}", "b": '{"b":1}'},
    ),
    "an index used again": (
        (part(0, id="x", name="a", arguments='{"a":1}'), part(0, id="y", name="b", arguments='{"b":1}')),
        {"a": '{"a":1}', "b": '{"b":1}'},
    ),
    "an id that comes later": (
        (part(0, name="a", arguments=""), part(0, id="x", arguments='{"a":'), part(0, arguments="1}")),
        {"a": '{"a":1}'},
    ),
    "pieces that alternate": (
        (
            part(0, id="x", name="a", arguments='{"a"'),
            part(1, id="y", name="b", arguments='{"b"'),
            part(0, arguments=":1}"),
            part(1, arguments=":2}"),
        ),
        {"a": '{"a":1}', "b": '{"b":2}'},
    ),
}


@pytest.mark.case("U45")
@pytest.mark.parametrize(("pieces", "calls"), TANGLED.values(), ids=TANGLED)
@pytest.mark.parametrize("held", [False, True], ids=["live", "held"])
async def test_arguments_never_mix(
    held: bool, pieces: tuple[bytes, ...], calls: dict[str, str], autojump_clock: MockClock
) -> None:
    peer = Peer(role(), *pieces, finish("tool_calls"), DONE)
    async with faulty(peer, settings=Settings(tools="held" if held else "live")) as home:
        answered = await home.ask()
        got: dict[int, tuple[str, str]] = {}
        for value in sent_payloads(answered)[:-1]:
            entries: list[Any] = value["choices"][0]["delta"].get("tool_calls", []) if value["choices"] else []
            for entry in entries:
                name, arguments = got.get(entry["index"], ("", ""))
                said_now = entry["function"]
                got[entry["index"]] = (name + said_now.get("name", ""), arguments + said_now.get("arguments", ""))
        assert dict(got.values()) == calls
        assert statuses(answered) == ["running"] * len(calls)
        await judged(home, answered, "completed", came=peer.body)


OPEN_CALLS = {"never closed": '{"path":"/tmp', "no JSON": "{path: a}", "nothing of it": '{"a":1}}'}


@pytest.mark.case("U46")
@pytest.mark.parametrize("arguments", OPEN_CALLS.values(), ids=OPEN_CALLS)
@pytest.mark.parametrize("mode", ["error", "warn", "both"])
@pytest.mark.parametrize("before", [(), (text("so: "),)], ids=["alone", "behind a text"])
async def test_claimed_call_with_invalid_json_is_malformed(
    before: tuple[bytes, ...], mode: Any, arguments: str, autojump_clock: MockClock
) -> None:
    peer = Peer(role(), *before, call(arguments, TOOL), finish("tool_calls"), DONE, every_s=0.1)
    async with faulty(peer, settings=Settings(on_partial=mode)) as home:
        answered = await home.ask()
        values = sent_payloads(answered)
        assert statuses(answered) == ["dropped"]
        assert next(v for v in values if "status" in as_object(v))["reason"] == "malformed"
        assert b'"tool_calls"' not in answered.body.replace(b'"tool_calls":', b""), "nobody claims it"
        if mode == "warn":
            assert values[-1] == "[DONE]"
            assert values[-2]["choices"][0]["finish_reason"] == "length"
            assert b'"tool_calls":' not in answered.body
        else:
            assert (values[-1]["error"]["code"], "[DONE]" in values) == ("malformed_call", False)
        assert (TOOL in said(answered)) == (mode != "error")
        await judged(home, answered, "completed", "malformed_call", came=peer.body)


@pytest.mark.case("U47")
async def test_internal_tools_and_orphans_get_no_lifecycle_frames(autojump_clock: MockClock) -> None:
    asked = {
        **ASKED,
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "tool_calls": [{"id": "k", "type": "function", "function": {"name": "_in", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "k", "content": "inside"},
            {"role": "tool", "tool_call_id": "nobody", "content": "orphan"},
        ],
    }
    peer = Peer(role(), text("a"), part(0, id="z", name="_internal", arguments="{}"), finish("tool_calls"), DONE)
    async with faulty(peer) as home:
        answered = await home.ask(asked)
        assert statuses(answered) == []
        assert b"hermes.tool.progress" not in answered.body
        seen = await judged(home, answered, "completed", came=peer.body)
        assert b"_internal" in received(seen.tape)


@pytest.mark.case("U48")
@pytest.mark.parametrize("asks", [True, False], ids=["the client asks", "the route asks"])
async def test_route_can_request_usage_that_its_client_does_not_see(asks: bool, autojump_clock: MockClock) -> None:
    peer = Peer(role(), text("a"), finish(), usage(), DONE)
    async with faulty(peer, route={"include_usage": True}) as home:
        answered = await home.ask(WITH_USAGE if asks else ASKED)
        assert b'"include_usage":true' in peer.requests[0].replace(b" ", b"")
        assert (b'"usage":{' in answered.body) is asks
        await judged(home, answered, "completed", came=peer.body)
        assert home.log[-1][0] == "ended"


@pytest.mark.case("U49")
@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(
            b'event: hermes.tool.progress\ndata: {"tool":"x","toolCallId":"y","status":"running"}\n\n', id="hermes"
        ),
        pytest.param(b'event: run.completed\ndata: {"event":"run.completed","output":"done"}\n\n', id="a run"),
        pytest.param(b'event: execute\ndata: {"code":"alert(1)"}\n\n', id="code"),
    ],
)
async def test_upstream_events_are_never_relayed_as_ours(foreign: bytes, autojump_clock: MockClock) -> None:
    peer = Peer(role(), text("a"), foreign, text("b"), finish(), DONE)
    async with faulty(peer) as home:
        answered = await home.ask()
        assert b"event:" not in answered.body
        assert statuses(answered) == []
        assert said(answered) == "ab"
        await judged(home, answered, "completed", "foreign", came=peer.body)


@pytest.mark.case("U61")
@pytest.mark.parametrize("created", [0, -1, 99_999_999_999_999, None, "yesterday", 1.5])
async def test_upstream_timestamps_order_nothing(created: Any, autojump_clock: MockClock) -> None:
    frames = [frame({"content": letter}, created=value) for letter, value in zip("abc", (5, created, 1), strict=True)]
    async with faulty(peer := Peer(role(), *frames, finish(), DONE, every_s=1)) as home:
        answered = await home.ask()
        assert said(answered) == "abc"
        stamps = {value["created"] for value in sent_payloads(answered)[:-1]}
        assert len(stamps) == 1, "one stream, one time"
        seen = await judged(home, answered, "completed", came=peer.body)
        assert [record.t for record in seen.tape] == sorted(record.t for record in seen.tape)
