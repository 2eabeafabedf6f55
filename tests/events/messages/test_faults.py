"""What other gateways got wrong when they read Messages (rows 37, 84 to 87 of the fault catalogue)."""

from tests.events.messages.reader import Client
from tests.events.messages.streams import CALL, CALLED, END, START, begin, finish, sign, stop, stream, thought
from tests.support.chat import run
from wiretape.events.core.model import Proof
from wiretape.events.emit import summarise
from wiretape.events.folds.wire import tokens
from wiretape.events.messages.whole import frames_of, whole

SIGNATURE = "EqQB+/=" * 300


def test_fault_37_cached_tokens_are_part_of_the_input() -> None:
    usage = {"input_tokens": 4, "cache_read_input_tokens": 90_000, "cache_creation_input_tokens": 6, "output_tokens": 5}
    summary = summarise(stream([START, begin("text"), stop(), finish("end_turn", usage), END]))
    assert summary.wire.usage is not None
    assert tokens(summary.wire.usage) == {"input_tokens": 90_010, "output_tokens": 5, "total_tokens": 90_015}


def test_fault_84_a_cut_inside_input_is_an_error_and_no_call() -> None:
    for count in range(1, len(CALL)):
        client = Client(run(stream([START, *CALL[:count]])).out)
        assert client.error is not None
        assert client.error["dropped_tools"] == [{"id": "toolu_1", "name": "f"}]
        assert client.runs == []


def test_fault_85_a_signature_passes_byte_for_byte_in_pieces_and_whole() -> None:
    frames = [START, begin("thinking"), thought("h\u00e9 \u2028"), sign(SIGNATURE), stop(), *MORE, CALLED, END]
    result = run(stream(frames, reads=13, tool_events=False))
    assert result.sent == frames
    assert [proof.value for proof in result.of(Proof)] == [SIGNATURE]
    block = {"type": "thinking", "thinking": "hm", "signature": SIGNATURE}
    assert whole(frames_of({"type": "message", "content": [block]}))["content"] == [block]


MORE = [frame.replace(b'"index":0', b'"index":1') for frame in CALL]


def test_fault_86_a_thought_without_a_signature_stays_without_one() -> None:
    frames = [START, begin("thinking"), thought("hm"), stop(), *MORE, CALLED, END]
    result = run(stream(frames, tool_events=False))
    assert result.sent == frames
    assert result.of(Proof) == []


def test_fault_87_a_thought_keeps_its_place_before_the_call() -> None:
    overlapping = [
        START,
        begin("thinking"),
        MORE[0],
        thought("hm"),
        MORE[1],
        sign("s"),
        MORE[2],
        MORE[3],
        stop(),
        CALLED,
        END,
    ]
    result = run(stream(overlapping, tool_events=False))
    assert [kind for kind, _ in Client(result.out).blocks] == ["thinking", "tool_use"]
    assert Client(result.out).runs == ['{"x":1}']
