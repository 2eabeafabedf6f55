"""A secret that a stream stopped inside of, or repeats and extends, is replaced like a complete one."""

import random
from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.replay.canaries import CANARIES, pieces
from tests.replay.captured import each_protocol, recorded
from tests.replay.made import checked, codes, live, stream
from tests.support.corpus import sampled
from wiretape.events.core.json_text import as_list, as_object, dumps
from wiretape.events.tape.record import Record
from wiretape.replay.faults.cutting import cut
from wiretape.replay.playback.script import Fault, event_stream
from wiretape.replay.redaction.redact import findings
from wiretape.replay.seal import Rules, seal

KEY: Final = CANARIES["openai-project"]


def saying(*said: str, asked_for: str = "hi", end: Fault | None = None, done: bool = False) -> list[Record]:
    """A chat stream of these pieces."""
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in said]
    chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}] if done else []
    frames = [b"data: %b\n\n" % dumps(chunk) for chunk in chunks] + [b"data: [DONE]\n\n"] * done
    return stream(event_stream(frames, end=end), asked_for)


def contents(records: Sequence[Record]) -> list[str]:
    """What its frames say."""
    values = [record.read().value for record in records if record.kind == "frame" and record.payload is not None]
    deltas = [as_object(choice)["delta"] for value in values for choice in as_list(as_object(value).get("choices"))]
    return [delta["content"] for delta in deltas if "content" in delta]


# -- cut --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", sorted(CANARIES))
def test_key_cut_by_a_reset_is_replaced(vendor: str) -> None:
    """Seen: the request said `[redacted-huggingface-1]`, the frames and the fold line 36 of its 37 characters."""
    said = f"my token is {CANARIES[vendor]}"
    echo = saying(*pieces(said[:-1], 4), asked_for=f"{said} thanks", end=Fault.RESET)
    data = seal([echo])
    placeholder = f"[redacted-{vendor.partition('-')[0]}-1]"
    joined = "".join(contents(checked(data).streams[0]))
    assert joined.rstrip("-") == f"my token is {placeholder}"  # of the last line of a private key dashes stay
    assert CANARIES[vendor][10:-1].encode() not in data
    exact = seal([echo], Rules(exact=True, secrets_allowed=True))
    assert codes(exact).count("secret") >= 2


@pytest.mark.parametrize("place", ["frame:4", "frame:5", "byte:300"])
def test_a_live_tape_is_sealed_before_it_is_cut(place: str) -> None:
    """Seen: cut first, the key was unknown when sealing."""
    records = saying("so ", KEY[:40], KEY[40:80], KEY[80:], " ok", done=True)
    data = cut(live(records), place, "reset")
    assert codes(data) == []
    assert b"[redacted-openai-1]" in data
    assert KEY[8:30].encode() not in data


@each_protocol
def test_no_false_alarm_in_captures_cut_anywhere(protocol: str) -> None:
    """Of 2,408 cuts none was."""
    for seed, capture in sampled(protocol, one_in=20):
        body = capture.body[: random.Random(seed).randrange(1, min(len(capture.body), 60_000) + 1)]  # noqa: S311
        assert findings([recorded(body, protocol, seed)[:-1]]) == [], capture.id


# -- said again and again ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", ["huggingface", "openai-project", "aws", "jwt"])
def test_cumulative_stream_keeps_no_part_of_the_key(vendor: str) -> None:
    """Seen: early frames kept most of the key, and the word after it was taken for its end."""
    text = f"my token is {CANARIES[vendor]} thanks"
    data = seal([saying(*(text[:at] for at in range(4, len(text) + 5, 5)), done=True)])
    [records] = checked(data).streams
    assert data.count(b"-2]") == 0
    for said in contents(records):
        left = said.removeprefix("my token is ")
        open_ = CANARIES[vendor].rindex("eyJ") + 3 if vendor == "jwt" else 8  # what all of its kind begin with
        assert len(left) < open_ + 5 or left.startswith("[redacted-")
        assert f"my token is {CANARIES[vendor]} thanks".startswith(said) or "[redacted-" in said
    assert contents(records)[-1] == f"my token is [redacted-{vendor.partition('-')[0]}-1] thanks"
