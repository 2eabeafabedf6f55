"""Writes fixtures/format-1: `python -m tests.support.make_fixtures`. The same bytes at every run; a test compares.

A tape of every format version stays for ever and is read by every later version. When the format grows, this file goes
on writing format 1 by its own literals, or is frozen with its tapes: they are never written again in another format.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Recorder
from wiretape.events.wire.sse import BOM

FOLDER: Final = Path(__file__).parents[2] / "fixtures/format-1"

_HEAD: Final = '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1800000000,"model":"synthetic"'


def _chunk(delta: str, finish: str = "null") -> bytes:
    return f'{_HEAD},"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}'.encode()


def _frames(*payloads: bytes) -> bytes:
    return b"".join(b"data: %b\n\n" % payload for payload in payloads)


def _reads(body: bytes, *places: int) -> list[bytes]:
    return [body[start:end] for start, end in zip((0, *places), (*places, len(body)), strict=True)]


_TEXT: Final = _frames(
    _chunk('{"role":"assistant","content":""}'), _chunk('{"content":"Grüße, "}'), _chunk('{"content":"🐍"}'),
    _chunk("{}", '"stop"'), b"[DONE]",
)  # fmt: skip

#: The synthetic upstreams: cause of the end, and the bytes as they were read.
UPSTREAM: Final[Mapping[str, tuple[str, list[bytes]]]] = MappingProxyType({
    # Reads end inside a two-byte character, twice inside a four-byte one, and between the two LF of a blank line.
    "text": ("eof", _reads(_TEXT, _TEXT.index(b"\xbc"), _TEXT.index(b"\x9f"), _TEXT.index(b"\x8d"), len(_TEXT) - 1)),
    "tool_call": ("eof", [
        _frames(_chunk(
            '{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function",'
            '"function":{"name":"write_file","arguments":""}}]}'
        )),
        _frames(
            _chunk('{"tool_calls":[{"index":0,"function":{"arguments":"{\\"path\\":\\"a.txt\\","}}]}'),
            _chunk('{"tool_calls":[{"index":0,"function":{"arguments":"\\"size\\":12345678901234567890}"}}]}'),
        ),
        _frames(_chunk("{}", '"tool_calls"'), b"[DONE]"),
    ]),
    # Every way of framing that is not ours: BOM, CRLF, comments, event, id, retry, two data lines, stray blank lines.
    "framing": ("eof", [
        BOM + b": hello\r\n\r\nretry: 3000\r\nid: 1\r\n\r",
        b"\nevent: message\r\ndata:%b\r\n\r\n\r\n" % _chunk('{"role":"assistant","content":"a"}'),
        b"event: message\ndata: %b\n\n" % _chunk('{"content":"b"}'),
        b'data: {"object":"chat.completion.chunk",\ndata: "choices":[]}\n\n: \xf0\x9f\x90\x8d\n\ndata:\n\n',
        b"data: %b\r\rdata: [DONE]\r\n\r" % _chunk("{}", '"stop"'),
    ]),
    "not_utf_8": ("eof", [
        b": caf\xe9\n\nevent: \xff\ndata: {}\n\n" + _frames(_chunk('{"content":"\\ud83d"}'), b'{"choices":"\xc3"}'),
        b"data: \x00\n\n\xfe\xff",
    ]),
    "cut": ("reset", [
        _frames(_chunk('{"role":"assistant","content":"half an ans"}')) + b'data: {"id":"chatc',
        b'mpl-1","choices":[{"index":0,"delta":{"content":"w',
    ]),
})  # fmt: skip


def _records(name: str, cause: str, reads: Iterable[bytes]) -> list[Record]:
    recorder = Recorder()
    stream = {"format": 1, "stream": name, "dialect": "chat", "created": 1800000000, "profile": "strict"}
    facts = {"stream": True, "usage": False, "model": "synthetic", "n": None, "tools": ["write_file"]}
    body = b'{"model": "synthetic", "stream": true, "messages": [{"role": "user", "content": "?"}]}'
    records = [
        recorder.record("open", 0, {**stream, "emitter": 1, "settings": {"on_partial": "error", "tools": "live"}}),
        recorder.record("request", 40, {"method": "POST", "path": "/v1/chat/completions", "facts": facts}, body),
        recorder.record("attempt", 90, {"number": 1, "upstream": "synthetic"}),
        recorder.record("head", 250_000, {"status": 200, "headers": [["content-type", "text/event-stream"]]}),
    ]
    for number, read in enumerate(reads):
        records += recorder.read(300_000 + 20_000 * number, read)
        if not number:
            records.append(recorder.record("commit", 300_100, {"status": 200}))
    records += recorder.rest(1_000_000)
    return [*records, recorder.end(1_000_000, {"cause": cause})]


#: Every tape, by the name of its file.
TAPES: Final[Mapping[str, bytes]] = MappingProxyType(
    {name: b"".join(map(encode, _records(name, cause, reads))) for name, (cause, reads) in UPSTREAM.items()}
)


def write(folder: Path = FOLDER) -> None:
    """All of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tape in TAPES.items():
        (folder / f"{name}.tape").write_bytes(tape)


if __name__ == "__main__":
    write()
