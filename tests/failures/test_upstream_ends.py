"""Streams that end wrongly, late or not at all: U17 to U26 and U60."""

from typing import Any

import pytest
from trio.testing import MockClock

from tests.failures.judged import PLAIN, TOOL, each_its_own, error_of, faulty, judged, sent_payloads
from tests.support.house import ASKED, DONE, HEAD, End, Peer, call, finish, frame, role, text, usage
from wiretape.events.core.json_text import as_object
from wiretape.events.core.limits import JSON_VALUES_MAX
from wiretape.events.core.settings import Settings

UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n"
WHOLE = (
    b'{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":'
    b'[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
)
WHOLE_HEAD = JSON_HEAD.replace(b"500", b"%d" % len(WHOLE))
HALF_CALL = (role(), call('{"path":"/tmp/a","te', TOOL))
TEXT = (role(), text("hello "), text("wor"))
KEEPALIVE = b": keepalive\n\n"
MODES: Any = ["error", "warn", "both"]

#: Case, how the connection ends, its head, the bytes of an unfinished frame before it, the ending.
CUTS: dict[str, tuple[End, bytes, bytes, str]] = {
    "U18 a reset in a frame": ("rst", HEAD, b'data: {"id":"c1","choi', "reset"),
    "U18 a reset between frames": ("rst", HEAD, b"", "reset"),
    "U18 a reset until the close": ("rst", UNTIL_CLOSE, b"data", "reset"),
    "U19 a cut chunked body": ("fin", HEAD, b"", "truncated"),
    "U19 a cut chunked body in a frame": ("fin", HEAD, b"data: {", "truncated"),
    "U19 chunks that end without a terminator": ("final", HEAD, b"", "truncated"),
    "U20 a close that looks clean": ("fin", UNTIL_CLOSE, b"", "truncated"),
    "U20 a close in a frame": ("fin", UNTIL_CLOSE, b'data: {"id"', "truncated"),
}
CASES = [pytest.param(*cut, id=name, marks=pytest.mark.case(name[:3])) for name, cut in CUTS.items()]


def texts(values: list[Any]) -> str:
    """What a person reads."""
    chunks = [as_object(value) for value in values]
    deltas = [choice.get("delta", {}) for value in chunks for choice in value.get("choices", [])]
    return "".join(delta.get("content") or "" for delta in deltas)


def told_as(values: list[Any], mode: str, code: str, tool: str, visible: str) -> None:
    """As `on_partial` says."""
    warning = texts(values).removeprefix(visible)
    if mode == "warn":
        assert values[-1] == "[DONE]"
        assert values[-2]["choices"][0]["finish_reason"] == "length"
        assert not any("tool_calls" in str(value) for value in values), "a call that was cut was never shown"
    else:
        error = values[-1]["error"]
        assert (error["type"], error["code"]) == ("stream_truncated", code)
        assert [call["name"] for call in error["dropped_tools"]] == ([tool] if tool else [])
        assert not tool or tool in error["message"]
    assert (tool in warning and "⚠" in warning) if tool and mode != "error" else not warning


@pytest.mark.parametrize(("end", "head", "partial", "ending"), CASES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("frames", "tool"), [(HALF_CALL, TOOL), (TEXT, "")], ids=["in a call", "in a text"])
async def test_cut_after_delivery_is_reported_and_not_completed(
    frames: tuple[bytes, ...],
    tool: str,
    mode: Any,
    end: End,
    head: bytes,
    partial: bytes,
    ending: str,
    autojump_clock: MockClock,
) -> None:
    peer = Peer(*frames, partial, head=head, end=end, every_s=1)
    async with faulty(peer, settings=Settings(on_partial=mode)) as home:
        answered = await home.ask()
        if tool and mode == "warn":  # nothing was shown yet, so it was asked again
            await judged(home, answered, ending, came=peer.body)
            assert b"tool_calls" not in answered.body
            told_as(sent_payloads(answered), mode, ending, tool, "")
            return
        assert (answered.status, answered.ended) == (200, "chunked")
        seen = await judged(home, answered, ending, came=peer.body)
        told_as(sent_payloads(answered), mode, ending, tool, "" if tool else "hello wor")
        assert len(peer.requests) == 1, "V9"
        if partial:
            assert [record.raw for record in seen.tape if record.kind == "rest"] == [partial]


@pytest.mark.parametrize(("end", "head", "partial", "ending"), CASES)
@pytest.mark.parametrize("mode", ["warn"])
async def test_cut_held_call_after_text_is_explained_in_the_text(
    mode: Any, end: End, head: bytes, partial: bytes, ending: str, autojump_clock: MockClock
) -> None:
    peer = Peer(role(), text("so: "), *HALF_CALL[1:], partial, head=head, end=end, every_s=1)
    async with faulty(peer) as home:
        answered = await home.ask(ASKED, "X-Wiretape-On-Partial: warn")
        await judged(home, answered, ending, came=peer.body)
        told_as(sent_payloads(answered), mode, ending, TOOL, "so: ")


@pytest.mark.parametrize(("end", "head", "partial", "ending"), CASES)
@pytest.mark.parametrize("mode", ["error", "both"])
async def test_held_call_that_no_attempt_completes_is_reported_in_the_stream(
    mode: Any, end: End, head: bytes, partial: bytes, ending: str, autojump_clock: MockClock
) -> None:
    """An HTTP error would say nothing of the call, and clients ask again after one: seven times, or for ever."""
    peer = Peer(*HALF_CALL, partial, head=head, end=end, every_s=1)
    async with faulty(peer, settings=Settings(on_partial=mode, tools="held")) as home:
        answered = await home.ask()
        seen = await judged(home, answered, ending, came=peer.body)
        assert (answered.status, answered.ended) == (200, "chunked")
        assert b"tool_calls" not in answered.body
        told_as(sent_payloads(answered), mode, ending, TOOL, "")
        assert len(seen.attempts) == 3


@pytest.mark.parametrize(("end", "head", "partial", "ending"), CASES)
async def test_transparent_profile_passes_a_cut_on(
    end: End, head: bytes, partial: bytes, ending: str, autojump_clock: MockClock
) -> None:
    peer = Peer(*HALF_CALL, partial, head=head, end=end, every_s=1)
    async with faulty(peer, settings=Settings(profile="transparent")) as home:
        answered = await home.ask()
        assert answered.body == peer.body
        seen = await judged(home, answered, ending, came=peer.body)
        assert answered.ended in (("chunked",) if end == "final" else ("cut", "reset"))
        assert len(seen.attempts) == 1


@pytest.mark.parametrize(("end", "head", "partial", "ending"), CASES)
async def test_cut_before_delivery_is_retried(
    end: End, head: bytes, partial: bytes, ending: str, autojump_clock: MockClock
) -> None:
    bad = Peer(role(), usage(), partial, head=head, end=end)
    good = Peer(*TEXT, finish(), DONE)
    async with faulty(bad, good) as home:
        each_its_own(home)
        answered = await home.ask()
        seen = await judged(home, answered, "completed", came=good.body)
        assert answered.body == good.body
        assert [record.keys["ending"] for record in seen.failed] == [ending]
    async with faulty(bad) as home:
        answered = await home.ask()
        seen = await judged(home, answered, ending, came=bad.body)
        assert (answered.status, error_of(answered)["code"]) == (502, ending)
        assert len(seen.attempts) == 3


@pytest.mark.case("U17")
@pytest.mark.parametrize("end", ["rst", "fin"])
@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Ty"], ids=["silently", "in the head"])
@pytest.mark.parametrize("body", [ASKED, PLAIN], ids=["a stream", "a whole answer"])
async def test_connection_lost_before_the_head_is_tried_three_times(
    body: Any, head: bytes, end: End, autojump_clock: MockClock
) -> None:
    async with faulty(peer := Peer(head=head, end=end)) as home:
        answered = await home.ask(body)
        ending = "reset" if end == "rst" else "truncated"
        seen = await judged(home, answered, ending, came=b"")
        assert (answered.status, error_of(answered)["code"]) == (502, ending)
        assert answered.header(b"x-should-retry") == b"false"
        assert (len(peer.requests), len(seen.attempts)) == (3, 3)
        assert answered.at <= 2


@pytest.mark.case("U17")
async def test_other_exchanges_are_not_repeated(autojump_clock: MockClock) -> None:
    async with faulty(peer := Peer(head=b"", end="rst")) as home:
        answered = await home.ask(b"{}", path="/v1/batches")
        await judged(home, answered, "reset", came=b"")
        assert (answered.status, len(peer.requests)) == (502, 1)


HALF = b'{"choices":[{"index":0,"mess'
FRAMINGS: dict[str, tuple[bytes, End]] = {
    "a whole length": (JSON_HEAD.replace(b"500", b"%d" % len(HALF)), "final"),
    "whole chunks": (JSON_HEAD.replace(b"Content-Length: 500", b"Transfer-Encoding: chunked"), "final"),
    "a close": (JSON_HEAD.replace(b"Content-Length: 500\r\n", b""), "fin"),
    "a length cut short": (JSON_HEAD, "fin"),
    "a reset": (JSON_HEAD, "rst"),
}


@pytest.mark.case("U18", "U19", "U20")
@pytest.mark.parametrize("framing", FRAMINGS)
async def test_half_an_answer_is_an_error_in_every_framing(framing: str, autojump_clock: MockClock) -> None:
    head, end = FRAMINGS[framing]
    async with faulty(peer := Peer(HALF, head=head, end=end, every_s=1)) as home:
        each_its_own(home)
        answered = await home.ask(PLAIN)
        ending = "reset" if end == "rst" else "truncated"
        seen = await judged(home, answered, ending, came=HALF)
        assert (answered.status, error_of(answered)["code"]) == (502, ending)
        assert ("middle of its JSON" in error_of(answered)["message"]) is (end == "final" or framing == "a close")
        assert (len(peer.requests), seen.commits) == (3, [502])
    async with faulty(Peer(HALF, head=head, end=end), Peer(WHOLE, head=WHOLE_HEAD)) as home:
        each_its_own(home)
        answered = await home.ask(PLAIN)
        assert (answered.status, answered.body) == (200, WHOLE)
        assert (await home.ending())[0] == "completed"


@pytest.mark.parametrize("body", [WHOLE, HALF], ids=["whole", "half"])
async def test_empty_lines_before_a_whole_answer_keep_the_client_waiting(
    body: bytes, autojump_clock: MockClock
) -> None:
    """DeepSeek sends them for up to ten minutes. The status is out by then, so half an answer is a cut."""
    head = FRAMINGS["whole chunks"][0]
    async with faulty(Peer(*[b"\n"] * 9, body, head=head, every_s=10)) as home:
        answered = await home.ask(PLAIN)
        assert (answered.status, answered.body) == (200, b"\n" * 9 + body)
        assert answered.at == pytest.approx(20, abs=0.1)
        assert answered.ended == ("chunked" if body is WHOLE else "cut")


async def test_whole_answer_of_too_many_values_passes_unread(autojump_clock: MockClock) -> None:
    """As 4,000 tokens with 20 logprobs each are. Nothing says that it is half."""
    body = WHOLE.replace(b'"finish_reason"', b'"logprobs":[%b0],"finish_reason"' % (b"0," * JSON_VALUES_MAX))
    head = JSON_HEAD.replace(b"500", b"%d" % len(body))
    async with faulty(peer := Peer(body, head=head)) as home:
        answered = await home.ask(PLAIN)
        assert (answered.status, answered.body, len(peer.requests)) == (200, body, 1)
        assert (await home.ending())[0] == "limit"


@pytest.mark.parametrize(
    "body", [b"data: {}\n\n", b"busy", b'{"object":"x"}', b"[]", WHOLE.replace(b'"stop"', b"null")]
)
async def test_answer_that_is_no_half_object_passes_as_it_came(body: bytes, autojump_clock: MockClock) -> None:
    async with faulty(Peer(body, head=JSON_HEAD.replace(b"500", b"%d" % len(body)))) as home:
        answered = await home.ask(PLAIN)
        assert (answered.status, answered.body) == (200, body)


@pytest.mark.case("U19", "U20", "U18")
@pytest.mark.parametrize(("end", "ending"), [("fin", "truncated"), ("rst", "reset")])
async def test_half_an_exchange_is_passed_on_as_a_cut(end: End, ending: str, autojump_clock: MockClock) -> None:
    peer = Peer(b'{"choices":[{"mess', head=JSON_HEAD, end=end, every_s=1)
    async with faulty(peer) as home:
        answered = await home.ask(b"{}", path="/v1/embeddings")
        assert (answered.status, answered.body) == (200, peer.body)
        assert answered.header(b"content-length") == b"500"
        assert answered.ended in ("cut", "reset")
        await judged(home, answered, ending, came=peer.body)


@pytest.mark.case("U21")
@pytest.mark.parametrize("end", ["fin", "rst", "final"])
@pytest.mark.parametrize("head", [HEAD, UNTIL_CLOSE], ids=["chunked", "until the close"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", [True, False], ids=["calls", "text"])
async def test_finish_completes_without_a_terminator(
    tool: bool, mode: Any, head: bytes, end: End, autojump_clock: MockClock
) -> None:
    if head is UNTIL_CLOSE and end == "final":
        end = "fin"
    frames = [role(), call('{"a":1}', TOOL), finish("tool_calls")] if tool else [*TEXT, finish()]
    peer = Peer(*frames, head=head, end=end, every_s=0.1)
    async with faulty(peer, settings=Settings(on_partial=mode)) as home:
        answered = await home.ask()
        assert (answered.status, answered.ended) == (200, "chunked")
        assert answered.body.endswith(DONE)
        seen = await judged(home, answered, "completed", "no_done", came=peer.body)
        assert b"DONE" not in b"".join(record.raw or b"" for record in seen.tape), "the tape does not supply it"


@pytest.mark.case("U22", "U23")
@pytest.mark.parametrize("head", [b"", HEAD], ids=["before the head", "behind the head"])
async def test_silence_before_the_first_frame_ends_in_the_stream(head: bytes, autojump_clock: MockClock) -> None:
    async with faulty(peer := Peer(head=head, end="stall")) as home:
        answered = await home.ask()
        assert (answered.status, answered.ended) == (200, "chunked")
        assert answered.at == pytest.approx(15, abs=0.1), "the first keepalive fixes the status"
        assert answered.ended_at == pytest.approx(600, abs=1.5)
        assert answered.body.count(KEEPALIVE) == pytest.approx(40, abs=2)
        assert error_of(answered)["code"] == "stalled"
        seen = await judged(home, answered, "stalled", came=b"")
        assert (seen.commits, len(peer.requests)) == ([200], 1)


@pytest.mark.case("U22", "U23")
@pytest.mark.parametrize("head", [b"", HEAD, JSON_HEAD], ids=["before the head", "behind the head", "before a body"])
@pytest.mark.parametrize(
    ("how", "limit_s"),
    [({}, 10), ({"body": PLAIN}, 600), ({"body": b"{}", "path": "/v1/embeddings"}, 600)],
    ids=["a stream", "a whole answer", "an exchange"],
)
async def test_silence_without_keepalives_is_a_gateway_timeout(
    how: dict[str, Any], limit_s: float, head: bytes, autojump_clock: MockClock
) -> None:
    async with faulty(Peer(head=head, end="stall"), route={"first_byte_s": limit_s}) as home:
        answered = await home.ask(**how)
        await judged(home, answered, "stalled", came=b"")
        if head and "path" in how:  # its head has gone through
            assert (answered.status, answered.ended in ("cut", "reset")) == (200, True)
            return
        assert (answered.status, error_of(answered)["code"]) == (504, "stalled")
        assert f"{limit_s:g} s" in error_of(answered)["message"]
        assert answered.at == pytest.approx(limit_s, abs=1.5)


@pytest.mark.case("U22", "U23")
async def test_attempts_continue_after_keepalives(autojump_clock: MockClock) -> None:
    """A keepalive and the 200 that it fixes are no delivery."""
    bad, good = Peer(role(), end="fin", before_s=40), Peer(*TEXT, finish(), DONE, before_s=40)
    async with faulty(bad, good) as home:
        answered = await home.ask()
        seen = await judged(home, answered, "completed", came=good.body)
        assert answered.body.replace(KEEPALIVE, b"") == good.body
        assert answered.body.count(KEEPALIVE) >= 4
        assert (len(seen.attempts), seen.commits) == (2, [200])
    async with faulty(bad) as home:
        answered = await home.ask()
        seen = await judged(home, answered, "truncated", came=role())
        assert error_of(answered)["code"] == "truncated"
        assert (answered.status, len(seen.attempts)) == (200, 3)


@pytest.mark.case("U24")
@pytest.mark.parametrize("mode", MODES)
async def test_stall_inside_a_call_ends_at_the_idle_deadline(mode: Any, autojump_clock: MockClock) -> None:
    peer = Peer(role(), text("so: "), call('{"path":"/tmp/a","te', TOOL), end="stall")
    async with faulty(peer, settings=Settings(on_partial=mode)) as home:
        answered = await home.ask()
        assert answered.ended_at == pytest.approx(300, abs=1.5)
        assert answered.body.count(KEEPALIVE) >= 18
        told_as(sent_payloads(answered), mode, "stalled", TOOL, "so: ")
        await judged(home, answered, "stalled", came=peer.body)
        if mode == "error":
            dropped = next(v for v in sent_payloads(answered) if as_object(v).get("status") == "dropped")
            assert (dropped["input"], dropped["reason"]) == ('{"path":"/tmp/a","te', "stalled")


@pytest.mark.case("U24")
async def test_stall_in_the_transparent_profile_is_a_cut(autojump_clock: MockClock) -> None:
    async with faulty(peer := Peer(*HALF_CALL, end="stall"), settings=Settings(profile="transparent")) as home:
        answered = await home.ask()
        assert (answered.body, answered.ended in ("cut", "reset")) == (peer.body, True)
        assert KEEPALIVE not in answered.body
        await judged(home, answered, "stalled", came=peer.body)


@pytest.mark.case("U25")
@pytest.mark.parametrize("frames", [(*TEXT, finish()), (*TEXT, finish(), usage())], ids=["finish", "finish and usage"])
async def test_terminator_is_awaited_for_two_seconds_after_the_finish(
    frames: tuple[bytes, ...], autojump_clock: MockClock
) -> None:
    async with faulty(peer := Peer(*frames, end="stall")) as home:
        answered = await home.ask()
        assert (answered.status, answered.ended) == (200, "chunked")
        assert answered.ended_at == pytest.approx(2.25, abs=0.1)
        assert answered.body.endswith(DONE)
        await judged(home, answered, "completed", "no_done", came=peer.body)
        assert len(home.transport.pool) == 0, "its upstream was closed"


@pytest.mark.case("U25")
async def test_transparent_profile_does_not_end_silence_after_the_finish(autojump_clock: MockClock) -> None:
    """What comes later would be lost by who hangs up first; a client that needs no more leaves."""
    peer = Peer(*TEXT, finish(), end="stall")
    async with faulty(peer, settings=Settings(profile="transparent"), route={"idle_s": 40.0}) as home:
        answered = await home.ask()
        assert (answered.body, answered.ended in ("cut", "reset")) == (peer.body, True)
        assert answered.ended_at == pytest.approx(40, abs=1)
        await judged(home, answered, "completed", "no_done", came=peer.body)


@pytest.mark.case("U25")
async def test_frames_within_the_grace_period_count(autojump_clock: MockClock) -> None:
    asked = {**ASKED, "stream_options": {"include_usage": True}}
    async with faulty(peer := Peer(*TEXT, finish(), usage(), DONE, every_s=0.9)) as home:
        answered = await home.ask(asked)
        assert answered.body == peer.body
        await judged(home, answered, "completed", came=peer.body)


@pytest.mark.case("U25")
async def test_new_choice_cancels_the_grace_period(autojump_clock: MockClock) -> None:
    def of(index: int, delta: dict[str, Any], reason: str | None = None) -> bytes:
        return frame(choices=[{"index": index, "delta": delta, "finish_reason": reason}])

    frames = [role(), text("a"), finish(), of(1, {"role": "assistant", "content": "b"})]
    peer = Peer(*frames, of(1, {"content": "c"}), of(1, {"content": "d"}), of(1, {}, "stop"), DONE, every_s=1)
    async with faulty(peer) as home:
        answered = await home.ask({**ASKED, "n": 2})
        assert answered.body == peer.body
        await judged(home, answered, "completed", came=peer.body)


PINGS = {
    "comments": b": keepalive\n\n",
    "empty data": b"data: \n\n",
    "comments in data": b"data: : ping\n\n",
    "events called ping": b'event: ping\ndata: {"type":"ping"}\n\n',
    "objects called ping": b'data: {"type":"ping"}\n\n',
    "blank lines": b"\n",
}


@pytest.mark.case("U26")
@pytest.mark.parametrize("ping", PINGS.values(), ids=PINGS)
@pytest.mark.parametrize(("frames", "limit_s"), [((), 600), (TEXT, 300)], ids=["first", "behind a text"])
async def test_pings_and_comments_do_not_reset_the_stall_timer(
    frames: tuple[bytes, ...], limit_s: float, ping: bytes, autojump_clock: MockClock
) -> None:
    flags = ["foreign"] if b"type" in ping else []
    async with faulty(Peer(*frames, *[ping] * 400, every_s=5)) as home:
        answered = await home.ask()
        assert answered.ended_at == pytest.approx(limit_s + 5 * len(frames), abs=7)
        assert error_of(answered)["code"] == "stalled"
        assert answered.body.count(KEEPALIVE) >= 15, "its client is kept all the same"
        seen = await judged(home, answered, "stalled", *flags)
        assert seen.end["bytes"] > 50 * len(ping), "they are on the tape"


@pytest.mark.case("U60")
@pytest.mark.parametrize("gap_s", [5, 290])
@pytest.mark.parametrize("profile", ["strict", "transparent"])
async def test_stream_of_hours_has_no_hidden_limit(profile: Any, gap_s: float, autojump_clock: MockClock) -> None:
    frames = [role(), *[text("x")] * int(7_200 / gap_s), finish() + DONE]
    async with faulty(peer := Peer(*frames, every_s=gap_s), settings=Settings(profile=profile)) as home:
        answered = await home.ask()
        assert answered.ended_at >= 7_200
        assert answered.body.replace(KEEPALIVE, b"") == peer.body
        await judged(home, answered, "completed", came=peer.body)


@pytest.mark.case("U60")
async def test_other_exchange_of_hours_has_no_hidden_limit(autojump_clock: MockClock) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with faulty(peer := Peer(*[b"\xff\x00"] * 100, head=head, every_s=250)) as home:
        answered = await home.ask(b"{}", path="/v1/audio/speech")
        assert (answered.body, answered.ended) == (peer.body, "chunked")
        await judged(home, answered, "completed", came=peer.body)
