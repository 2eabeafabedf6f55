"""Strings that came in pieces are searched joined, however a dialect streams them."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pytest

from tests.replay.test_redact import KEY, tape
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.tape import reads
from wiretape.replay.redaction.redact import findings, redact
from wiretape.replay.sealed.sealed import decode, encode

_SOME: Final = ["it is ", *(KEY[at : at + 4] for at in range(0, len(KEY), 4)), ", so"]


def chat(delta: Any) -> Any:
    return {"choices": [{"index": 0, "delta": delta}]}


def _in_block(piece: str) -> Any:
    return {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": piece}}


def _sse(*values: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % dumps(value) for value in values)


def _lines(*values: Any) -> bytes:
    return b"".join(b"%b\n" % dumps(value) for value in values)


def _gemini(piece: str) -> Any:
    return {"candidates": [{"content": {"parts": [{"text": piece}], "role": "model"}}], "modelVersion": "g"}


def _in_two(piece: str) -> list[Any]:
    """Chunks of two texts, each with its index after the text."""
    return [{"choices": [{"delta": {"content": said}, "index": index}]} for index, said in ((1, piece), (0, "x "))]


_FIRST: Final = {
    "type": "content_block_start",
    "index": 1,
    "content_block": {"type": "text", "text": "it is " + KEY[:8]},
}
_ADDED: Final = {
    "type": "response.content_part.added",
    "output_index": 0,
    "content_index": 0,
    "part": {"text": KEY[:9]},
}
_ITEM: Final = {"type": "response.output_item.added", "output_index": 4, "item": {"arguments": '{"a":"' + KEY[:9]}}


def _delta(kind: str, piece: str, **at: int) -> Any:
    return {"type": f"response.{kind}.delta", "delta": piece, **at}


_STREAMS: Final[Mapping[str, bytes]] = MappingProxyType(
    {
        "array": b"[%b]" % b",\r\n".join(dumps(_gemini(piece)) for piece in _SOME),
        "array, pretty": json.dumps([_gemini(piece) for piece in _SOME], indent=2).encode(),
        "array that was cut": b"[%b" % b",\r\n".join(dumps(_gemini(piece)) for piece in _SOME)[:-20],
        "lines": _lines(*({"model": "m", "message": {"role": "a", "content": piece}} for piece in _SOME)),
        "lines of words": _lines(*({"response": piece, "done": False} for piece in _SOME))[:-5],
        "labelled lines": b"".join(b"0:%b\n" % dumps(piece) for piece in _SOME),
        "lines without ends": b"".join(dumps({"delta": {"text": piece}}) for piece in _SOME),
        "event stream by another name": _sse(*(chat({"content": piece}) for piece in _SOME)),
        "SSE: index behind": _sse(*(each for piece in _SOME for each in _in_two(piece))),
        "SSE: index behind, cut before": _sse(*(each for piece in _SOME[:-9] for each in _in_two(piece)))
        + b'data: {"choices":[{"delta":{"content":"'
        + "".join(_SOME[-9:-1]).encode()
        + b'"},"ind',
        "SSE: type behind, cut before": _sse(
            *({"delta": {"text": piece}, "index": 3, "type": "content_block_delta"} for piece in _SOME[:-9])
        )
        + b'data: {"delta":{"text":"'
        + "".join(_SOME[-9:-1]).encode(),
        "SSE: first piece of a block": _sse(_FIRST, *(_in_block(each) for each in KEY[8:])),
        "SSE: first piece of a part": _sse(
            _ADDED, *(_delta("output_text", each, content_index=0, output_index=0) for each in KEY[9:])
        ),
        "SSE: first piece of a call": _sse(
            _ITEM, *(_delta("function_call_arguments", each, output_index=4) for each in KEY[9:])
        ),
        "SSE: name in pieces": _sse(
            *(chat({"tool_calls": [{"index": 0, "function": {"name": each}}]}) for each in KEY)
        ),
        "SSE: counted": _sse(*({"index": n, "token": {"id": n, "text": each}} for n, each in enumerate(_SOME))),
        "SSE: kinds of one message": _sse(
            {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": KEY[:5]}}}},
            *(
                {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": each}}}}
                for each in KEY[5:]
            ),
        ),
        "SSE: plain words": b"".join(b"data: %b\n\n" % each.encode() for each in KEY) + b"data: [DONE]\n\n",
        "SSE: plain words of an event": b"".join(b"event: delta\ndata: %b\n\n" % each.encode() for each in KEY),
    }
)


@pytest.mark.parametrize("dialect", ["chat", "exchange"])
@pytest.mark.parametrize("shape", sorted(_STREAMS))
def test_pieces_of_every_dialect_are_joined(shape: str, dialect: str) -> None:
    body = _STREAMS[shape]
    records = tape(*(body[at : at + 50] for at in range(0, len(body), 50)), dialect=dialect, streamed="SSE" in shape)
    [done] = redact([records])
    left = b"".join(data for _, data in reads(done))
    assert left.count(b"[redacted-openai-1]") == 1
    assert len(left) < len(body) - len(KEY) + 25, "nothing of it is left"
    assert redact([done]) == [done]
    assert findings([done]) == []
    assert decode(encode({}, [done])).streams == [done]
    if b"modelVersion" in left and "cut" not in shape:
        assert _gemini("it is ") in json.loads(left)
