"""What a streaming client of an agent must be able to rely on, one behaviour a test, through the whole proxy

Each of these was once wrong somewhere else: in a gateway, in an agent's own reading of streams, or in review.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from tests.failures.judged import each_its_own
from tests.proxy.scripted import request_of
from tests.support.house import ASKED, DONE, House, answer, call, finish, frame, house, role, streams, text
from tests.support.http import Answer
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.core.settings import Settings
from wiretape.events.wire.sse import Decoder

LOST: Final = b'data: {"error":{"message":"Network connection lost."}}\n\n'
UNSTREAMED: Final = dumps(
    {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}],
    }
)
NO_STREAMS: Final = b'{"error":{"message":"Streaming is not supported for this model","type":"invalid_request_error"}}'


def payloads(answered: Answer) -> list[dict[str, Any]]:
    """Every JSON payload of the answer, in order."""
    given = [frame.payload for frame in Decoder().feed(answered.body)]
    return [parse(payload) for payload in given if payload is not None and payload != b"[DONE]"]


def deltas(answered: Answer) -> list[dict[str, Any]]:
    """Every delta that is not empty, in order."""
    each = [choice["delta"] for payload in payloads(answered) for choice in payload.get("choices", [])]
    return [delta for delta in each if delta]


def content(answered: Answer) -> str:
    return "".join(delta.get("content") or "" for delta in deltas(answered))


def calls(answered: Answer) -> list[tuple[str, str]]:
    """Name and arguments of each call, put together by index."""
    made: dict[int, list[str]] = {}
    for delta in deltas(answered):
        for entry in delta.get("tool_calls", []):
            one = made.setdefault(entry["index"], ["", ""])
            one[0] += entry["function"].get("name") or ""
            one[1] += entry["function"].get("arguments") or ""
    return [(name, arguments) for _, (name, arguments) in sorted(made.items())]


def lifecycle(answered: Answer) -> list[tuple[str, str, str]]:
    """Status, id and tool of each lifecycle frame."""
    return [(one["status"], one["toolCallId"], one["tool"]) for one in payloads(answered) if "toolCallId" in one]


def finishes(answered: Answer) -> list[str]:
    each = [choice["finish_reason"] for one in payloads(answered) for choice in one.get("choices", [])]
    return [reason for reason in each if reason]


async def asked_of(*frames: bytes, settings: Settings | None = None, end: bytes = b"0\r\n\r\n") -> Answer:
    async with house(streams(*frames, end=end), settings=settings) as home:
        return await home.ask()


# -- what the answer says ---------------------------------------------------------------------------------------------


async def test_text_is_accumulated(autojump_clock: MockClock) -> None:
    answered = await asked_of(role(), text("Hel"), text("lo"), text(" you"), finish(), DONE)
    assert content(answered) == "Hello you"


async def test_tools_are_accumulated(autojump_clock: MockClock) -> None:
    pieces = [call("", "read"), call('{"path":'), call("", "grep", index=1), call('"a"}'), call('{"q":1}', index=1)]
    answered = await asked_of(role(), *pieces, finish("tool_calls"), DONE)
    assert calls(answered) == [("read", '{"path":"a"}'), ("grep", '{"q":1}')]


async def test_extra_content_is_kept(autojump_clock: MockClock) -> None:
    signed = {"google": {"thought_signature": "c2lnbmVk"}}
    entry = {"index": 0, "id": "call_0", "type": "function", "extra_content": signed}
    first = frame({"tool_calls": [{**entry, "function": {"name": "read", "arguments": "{}"}}]})
    answered = await asked_of(role(), first, finish("tool_calls"), DONE)
    assert [entry.get("extra_content") for delta in deltas(answered) for entry in delta.get("tool_calls", [])] == [
        signed
    ]


async def test_content_and_calls_may_be_mixed(autojump_clock: MockClock) -> None:
    answered = await asked_of(role(), text("I read "), call("{}", "read"), text("it."), finish("tool_calls"), DONE)
    assert (content(answered), calls(answered)) == ("I read it.", [("read", "{}")])


async def test_deltas_keep_their_order(autojump_clock: MockClock) -> None:
    thought = frame({"reasoning_content": "hm"})
    answered = await asked_of(role(), thought, text("a"), call("{}", "read"), text("b"), finish("tool_calls"), DONE)
    kinds = [key for delta in deltas(answered) for key in delta if key != "role" and delta[key]]
    assert kinds == ["reasoning_content", "content", "tool_calls", "content"]


@pytest.mark.parametrize(
    "piece",
    [text("x"), frame({"reasoning_content": "x"}), call("x"), frame({}), frame({"refusal": "x"})],
    ids=["text", "reasoning", "arguments", "an empty delta", "a refusal"],
)
async def test_every_chunk_is_a_sign_of_life(piece: bytes, autojump_clock: MockClock) -> None:
    script = streams(call("", "read"), *[piece] * 5, finish("tool_calls"), DONE, every_s=50)
    async with house(script, route={"idle_s": 60.0}) as home:
        began = trio.current_time()
        await home.ask()
        assert trio.current_time() - began >= 300
        assert (await home.ending())[0] == "completed"


async def test_a_stream_of_tools_alone_has_no_text(autojump_clock: MockClock) -> None:
    answered = await asked_of(role(), call("{}", "read"), finish("tool_calls"), DONE)
    assert content(answered) == ""
    assert all("content" not in delta or not delta["content"] for delta in deltas(answered))


async def test_text_behind_a_call_is_delivered(autojump_clock: MockClock) -> None:
    answered = await asked_of(role(), call("{}", "read"), text("Done."), finish("tool_calls"), DONE)
    assert content(answered) == "Done."


async def test_reasoning_stands_beside_the_text(autojump_clock: MockClock) -> None:
    answered = await asked_of(frame({"role": "assistant", "reasoning": "hm"}), text("Yes."), finish(), DONE)
    assert content(answered) == "Yes."
    assert [delta["reasoning_content"] for delta in deltas(answered) if "reasoning_content" in delta] == ["hm"]


# -- attempts ---------------------------------------------------------------------------------------------------------


async def _attempts(home: House) -> int:
    return (await home.kinds()).count("attempt")


@pytest.mark.parametrize(
    ("failing", "status"),
    [
        (streams(LOST, end=b""), 502),
        (streams(role(), LOST), 502),
        (streams(end=b""), 502),
        (answer(503, b'{"error":{"message":"busy"}}'), 503),
        (answer(429, b'{"error":{"message":"slow down"}}', "Retry-After: 1"), 429),
    ],
    ids=["connection lost, in band", "the same behind a role", "nothing", "503", "429"],
)
async def test_what_may_pass_is_tried_three_times(failing: Any, status: int, autojump_clock: MockClock) -> None:
    async with house(failing, failing, streams(role(), text("at last"), finish(), DONE)) as home:
        each_its_own(home)
        answered = await home.ask()
        assert content(answered) == "at last"
        assert await _attempts(home) == 3
    async with house(failing) as home:
        each_its_own(home)
        answered = await home.ask()
        assert answered.status == status
        assert answered.header(b"x-should-retry") == b"false"
        assert await _attempts(home) == 3


@pytest.mark.parametrize(
    ("failing", "status"),
    [
        (answer(400, b'{"error":{"message":"no such tool","type":"invalid_request_error"}}'), 400),
        (answer(401, b'{"error":{"message":"who are you?"}}'), 401),
        (answer(404, b'{"error":{"message":"no such model"}}'), 404),
        (streams(b'data: {"error":{"message":"bad schema","type":"invalid_request_error","code":400}}\n\n'), 400),
    ],
    ids=["400", "401", "404", "a bad request, in band"],
)
async def test_what_will_not_pass_is_tried_once(failing: Any, status: int, autojump_clock: MockClock) -> None:
    async with house(failing) as home:
        answered = await home.ask()
        assert answered.status == status
        assert await _attempts(home) == 1


async def test_once_text_was_delivered_nothing_is_tried_again(autojump_clock: MockClock) -> None:
    async with house(streams(role(), text("Hel"), LOST)) as home:
        answered = await home.ask()
        assert content(answered) == "Hel"
        assert payloads(answered)[-1]["error"]["message"] == "Network connection lost."
        assert await _attempts(home) == 1


class Unstreamed:
    """Refuses whatever asks for a stream, and answers all else; keeps which was which."""

    def __init__(self) -> None:
        self.streamed: list[bool] = []

    async def __call__(self, stream: trio.abc.Stream) -> None:
        while request := await request_of(stream):
            self.streamed.append(parse(request.partition(b"\r\n\r\n")[2])["stream"])
            status, body = (b"400 Bad Request", NO_STREAMS) if self.streamed[-1] else (b"200 OK", UNSTREAMED)
            head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            await stream.send_all(head % (status, len(body)) + body)


async def test_that_streaming_is_not_supported_is_remembered(autojump_clock: MockClock) -> None:
    async with house(upstream := Unstreamed()) as home:
        first = await home.ask()
        assert (content(first), await _attempts(home)) == ("whole", 2)
        second = await home.ask()
        assert (content(second), await _attempts(home)) == ("whole", 1)
        assert upstream.streamed == [True, False, False]


# -- what breaks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["error", "warn", "both"])
async def test_a_call_that_is_cut_short_is_warned_of(mode: Any, autojump_clock: MockClock) -> None:
    answered = await asked_of(text("I write."), call('{"pa', "write_file"), settings=Settings(on_partial=mode), end=b"")
    warning = "Connection dropped mid tool-call: write_file was cut short. Nothing was executed."
    assert (warning in content(answered)) == (mode != "error")
    errors = [one["error"]["message"] for one in payloads(answered) if "error" in one]
    assert [warning in message for message in errors] == ([True] if mode != "warn" else [])
    assert lifecycle(answered) == [("dropped", "call_0", "write_file")]


async def test_a_cut_of_text_alone_is_not_warned_of_in_the_text(autojump_clock: MockClock) -> None:
    answered = await asked_of(role(), text("Once upon"), settings=Settings(on_partial="warn"), end=b"")
    assert (content(answered), finishes(answered)) == ("Once upon", ["length"])


# -- the life of a call -----------------------------------------------------------------------------------------------


def turn(*results: tuple[str, str], made: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
    """A request that brings results of the calls (id and name) that were made in the turn before."""
    entries = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}} for call_id, name in made
    ]
    return {
        **ASKED,
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": entries},
            *({"role": "tool", "tool_call_id": call_id, "content": content} for call_id, content in results),
        ],
    }


async def test_running_and_completed_have_one_id_in_order_and_are_exactly_two(autojump_clock: MockClock) -> None:
    first = streams(role(), call("", "read_file"), call("{}"), finish("tool_calls"), DONE)
    async with house(first, streams(role(), text("It says hi."), finish(), DONE)) as home:
        each_its_own(home)
        one = await home.ask()
        two = await home.ask(turn(("call_0", "hi"), made=[("call_0", "read_file")]))
    assert [*lifecycle(one), *lifecycle(two)] == [
        ("running", "call_0", "read_file"),
        ("completed", "call_0", "read_file"),
    ]


async def test_internal_tools_and_orphans_are_filtered(autojump_clock: MockClock) -> None:
    inside = [call("{}", "_thinking"), call("{}", "read_file", index=1)]
    async with house(streams(role(), *inside, finish("tool_calls"), DONE)) as home:
        assert lifecycle(await home.ask()) == [("running", "call_1", "read_file")]
    results = [("call_0", "x"), ("call_1", "y"), ("call_9", "nobody asked")]
    async with house(streams(role(), text("ok"), finish(), DONE)) as home:
        answered = await home.ask(turn(*results, made=[("call_0", "_thinking"), ("call_1", "read_file")]))
        assert lifecycle(answered) == [("completed", "call_1", "read_file")]
        recorded = [record for record in await home.tape() if record.kind == "results"]
        assert [one["id"] for one in recorded[0].keys["results"]] == ["call_0", "call_1", "call_9"]


async def test_nothing_of_it_is_ever_inside_the_content(autojump_clock: MockClock) -> None:
    both = [role(), text("I read."), call("{}", "read_file"), finish("tool_calls"), DONE]
    async with house(streams(*both)) as home:
        answered = await home.ask(turn(("call_7", "secret"), made=[("call_7", "grep")]))
    assert len(lifecycle(answered)) == 2
    assert content(answered) == "I read."
    assert all(choice["delta"] == {} for one in payloads(answered) if "toolCallId" in one for choice in one["choices"])
