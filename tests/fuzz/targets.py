"""What is fuzzed: a function of the input's bytes a target; an input that breaks a law raises AssertionError.

`stream`   the bytes as a chat stream, read, recorded, written, read again, emitted in every profile
`tape`     the bytes as a tape
`lines`    the lines of the input as records, with right checksums and numbers, to reach the code after those checks

Pure and without atheris, so that tests/events/test_fuzz_regressions.py replays corpus and regressions every day.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, get_args

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, parse
from wiretape.events.core.model import Ended, Ending
from wiretape.events.core.settings import Facts, OnPartial, Profile, Reasoning
from wiretape.events.emission.words import KEEPALIVE
from wiretape.events.emit import Emitter, events
from wiretape.events.tape.record import Record, decode, encode
from wiretape.events.tape.tape import Reader, Recorder, reads
from wiretape.events.wire.sse import Decoder

#: How a `stream` input starts: a byte for each choice below. Short ones are filled with zeros.
HEADER_BYTES: Final = 12
CAUSES: Final = ("eof", "reset", "stalled", "limit", "client_gone", "shutdown", "closed", "crashed", "what?")
LIMITS: Final = (1 << 23, 1 << 23, 4096, 256, 64, 16)
PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)
ENDINGS: Final = frozenset(get_args(Ending))
#: A frame of ours for each byte of a stream would stay below; an endless or doubling output would not.
OUTPUT_BYTES_MAX: Final = 64 * 1024
OUTPUT_RATIO_MAX: Final = 4096

RESULTS: Final[Sequence[Any]] = (
    {"id": "call_1", "name": "read", "output": "\ud83d", "failed": True},
    {"id": "x", "duration_ms": 5},
    7,
)

Reads = list[tuple[int, bytes]]


def stream(data: bytes) -> None:
    """L1, L2, L4, L5 over any bytes, settings, splits and times."""
    header, body = data[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0"), data[HEADER_BYTES:]
    upstream = _split(body, header)
    records, taken = _recorded(upstream, header)
    _check_tape(records, taken)
    outputs = {profile: _emitted(records, profile) for profile in PROFILES}
    live, _ = _recorded(upstream, header, skim=True)
    assert _emitted(live) == _emitted(records), "known by its edges, it goes out as another"
    assert list(map(encode, live)) == list(map(encode, records)), "a frame that is not parsed is written as another"
    _check_frames(outputs["strict"])
    _check_size(outputs["strict"], body)
    _check_events(records, ended=True)
    if not header[10] & 3:  # nothing of ours between the reads
        whole, _ = _recorded([(1, body)] if body else [], header)
        assert _emitted(whole, "strict") == outputs["strict"], "emission hangs on the reads (L1)"
        assert outputs["transparent"] == b"".join(data for _, data in taken), "transparent is not what came"


def tape(data: bytes) -> None:
    """Any bytes give records or damage; what comes back is emitted without an exception."""
    reader = Reader(line_bytes_max=1 << 20)
    size = 1 + len(data) % 97
    try:
        records = [record for at in range(0, len(data), size) for record in reader.feed(data[at : at + size])]
        assert records == Reader(line_bytes_max=1 << 20).feed(data), "the reader hangs on the reads"
    except TapeError:
        return
    assert len(records) + len(reader.damage) >= min(data.count(b"\n"), 1000), "a line was skipped silently"
    _check_records(records, data, ended=reader.ended)


def lines(data: bytes) -> None:
    """The same for lines that get the head of a record: `n`, `t` (one up a line) and the checksum."""
    made: list[bytes] = []
    for n, line in enumerate(data.split(b"\n")):
        body = line if line.startswith(b'"n":') else b'"n":%d,"t":%d,"k":%b' % (n, n, line)
        made.append(b'{"c":"%08x",%b\n' % (zlib.crc32(body), body))
    tape(b"".join(made))


TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = MappingProxyType(
    {"stream": stream, "tape": tape, "lines": lines}
)


# -- streams ----------------------------------------------------------------------------------------------------------


def _split(body: bytes, header: bytes) -> Reads:
    """Reads of sizes and times that the header chooses; the clock may stand still or run backwards."""
    sizes = [(1 << 30,), (1,), (header[0] + 1, header[1] + 1), (header[0] % 7 + 1, header[1] + 1, 2)][header[2] & 3]
    upstream: Reads = []
    while body:
        number = len(upstream)
        size = sizes[number % len(sizes)]
        upstream.append((number * (header[2] % 5 - 1), body[:size]))
        body = body[size:]
    return upstream


def _recorded(upstream: Reads, header: bytes, *, skim: bool = False) -> tuple[list[Record], Reads]:
    """Return the tape of one stream, and the reads that were taken before a limit was met.

    With `skim`, frames that repeat a shape are not parsed, as in the proxy.
    """
    recorder = Recorder(Decoder(LIMITS[header[3] % len(LIMITS)], LIMITS[header[4] % len(LIMITS)]), skim=skim)
    records = [
        recorder.record("open", 0, _opening(header)),
        recorder.record("request", 0, {"facts": _facts(header)}),
    ]
    if header[11] & 1:
        records.append(recorder.record("results", 1, {"results": list(RESULTS)}))
    cause, taken = CAUSES[header[9] % len(CAUSES)], Reads()
    for number, (t, data) in enumerate(upstream):
        records += recorder.read(t, data)
        taken.append((t, data))
        if recorder.decoder.overflow:
            cause = "limit"
            break
        if header[10] & 1 and number % 5 == 1:
            records.append(recorder.record("keepalive", t))
        if header[10] & 2 and number == 3:
            records += recorder.attempt(t, {"number": 2})
    records += recorder.rest(header[10])
    records.append(recorder.end(0, {"cause": cause}))
    return records, taken


def _opening(header: bytes) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "on_partial": get_args(OnPartial)[header[5] % 3],
        "tools": ("live", "held")[header[5] >> 2 & 1],
        "tool_events": not header[5] >> 3 & 1,
        "reasoning": get_args(Reasoning)[header[6] % 3],
        "cumulative": header[6] >> 2 & 7 == 7,
        "think": header[6] >> 5 & 3 == 3,
        "hermes": bool(header[7] >> 3 & 1),
    }
    return {"format": 1, "stream": "s", "dialect": "chat", "created": 7, "settings": chosen}


def _facts(header: bytes) -> dict[str, Any]:
    names = frozenset({"read", "write_file", "_internal"}) if header[7] & 4 else frozenset[str]()
    return Facts(
        usage=bool(header[7] & 1), model="m" * (header[7] >> 1 & 1), choices=(1, 2, None)[header[8] % 3], tools=names
    ).to_keys()


def _check_tape(records: Sequence[Record], taken: Reads) -> None:
    """L2, through lines and back."""
    reader = Reader()
    again = reader.feed(b"".join(map(encode, records)))
    assert (reader.damage, reader.torn, reader.ended) == ([], b"", True), "our own tape is damaged"
    assert again == list(records), "the records that come back are others"
    given = list(reads(again))
    assert [data for _, data in given] == [data for _, data in taken], "the reads that come back are others"
    assert all(one < other for (one, _), (other, _) in pairwise(given)), "times stand still"


# -- what both check --------------------------------------------------------------------------------------------------


def _emitted(records: Sequence[Record], profile: Profile | None = None) -> bytes:
    emitter = Emitter(profile)
    return b"".join(frame for record in records for frame in emitter.feed(record))


def _check_records(records: Sequence[Record], data: bytes, *, ended: bool) -> None:
    for record in records:
        again = decode(encode(record)[:-1])
        assert isinstance(again, Record), f"what was read cannot be read again: {again}"
        assert again[:3] == record[:3], "another record comes back"
        assert again[4:6] == record[4:6], "other bytes come back"
    assert all(part for _, part in reads(records)), "an empty read"
    for profile in PROFILES:
        output = _emitted(records, profile)
        if profile == "strict" and _speaks_chat(records):
            _check_frames(output)
            _check_size(output, data)
    _check_events(records, ended=ended)


def _speaks_chat(records: Sequence[Record]) -> bool:
    """Whether all that is emitted is a chat stream; a plain answer or an error's body may be anything."""
    opened = [record for record in records if record.kind == "open"]
    return (
        bool(opened)
        and records[0] is opened[0]
        and all(record.keys.get("dialect") == "chat" for record in opened)
        and not any(record.kind == "commit" and record.raw is not None for record in records)
        and all(Facts.of(record.keys).stream for record in records if record.kind == "request")
    )


def _check_frames(output: bytes) -> None:
    """What a client gets is SSE whose payloads are JSON or the terminator, and keepalives."""
    decoder = Decoder(1 << 30, 1 << 30)
    frames = decoder.feed(output) + decoder.close()
    assert not decoder.rest, f"no whole frame at the end: {decoder.rest[:80]!r}"
    for frame in frames:
        payload = frame.payload
        if frame.raw == KEEPALIVE:  # emitted by a `keepalive` record
            continue
        assert payload is not None, f"a frame without data: {frame.raw[:80]!r}"
        assert payload == b"[DONE]" or parse(payload) is not ABSENT, f"no JSON: {payload[:80]!r}"
        assert frame.id is None, "an id on a chat stream"


def _check_size(output: bytes, data: bytes) -> None:
    assert len(output) <= OUTPUT_BYTES_MAX + OUTPUT_RATIO_MAX * len(data), f"{len(output)} bytes out of {len(data)}"


def _check_events(records: Sequence[Record], *, ended: bool) -> None:
    """One ending of the closed set, as the last event; what is not read as chat ends as its tape says, or not."""
    seen = list(events(records))
    endings = [event for event in seen if isinstance(event, Ended)]
    expected = ended and (_read_as_chat(records) or records[-1].keys.get("ending") in ENDINGS)
    assert len(endings) == expected, f"{len(endings)} endings"
    assert all(event.ending in ENDINGS for event in endings), "an ending that nobody knows"
    assert not expected or seen[-1] is endings[0], "an event behind the ending"


def _read_as_chat(records: Sequence[Record]) -> bool:
    """Whether the dialect in force at the end is ours; the last `open` says which."""
    said = [record.keys.get("dialect") for record in records if record.kind == "open"]
    return bool(said) and said[-1] == "chat"
