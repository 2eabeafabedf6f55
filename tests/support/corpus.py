"""Captured provider streams from a folder outside the repository; they are third-party and never committed."""

import base64
import functools
import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

#: 27 chat streams are longer, up to 1.6 MB; each costs as much as hundreds of others, so only `make laws` reads them.
_SAMPLED_BYTES_MAX = 100_000
#: The corpus' name of the protocol of each dialect.
PROTOCOLS = {"chat": "chat", "responses": "responses", "messages": "anthropic"}

_DEFAULT = Path(__file__).parents[2] / "../shared/corpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A captured response; with `synthetic_framing` the capture kept the JSON but not the SSE framing."""

    id: str
    provider: str
    model: str
    synthetic_framing: bool
    body: bytes


def corpus_folder() -> Path | None:
    """Return the folder in WIRETAPE_CORPUS, else ../shared/corpus next to the repository, if it has captures."""
    folder = Path(os.environ.get("WIRETAPE_CORPUS") or _DEFAULT).resolve()
    return folder if any(folder.glob("*.jsonl.gz")) else None


@functools.cache
def load(protocol: str = "chat") -> tuple[Stream, ...]:
    """Return every stream of one protocol, ordered by id, or none without a corpus."""
    folder = corpus_folder()
    if folder is None:
        return ()
    lines = (line for path in folder.glob("*.jsonl.gz") for line in gzip.decompress(path.read_bytes()).splitlines())
    captures = (capture for capture in map(json.loads, lines) if capture["protocol"] == protocol)
    streams = (
        Stream(
            id=capture["id"],
            provider=capture["provider"],
            model=capture.get("model", ""),
            synthetic_framing=capture["framing"] == "synthetic",
            body=capture["body"].encode() if "body" in capture else base64.b64decode(capture["b64"]),
        )
        for capture in captures
    )
    return tuple(sorted(streams, key=lambda stream: stream.id))


def sampled(protocol: str = "chat", *, one_in: int = 20) -> Iterator[tuple[int, Stream]]:
    """Yield numbered streams: all in `make laws`, else the first of each provider and one in `one_in` of the rest."""
    assert load(protocol), "the corpus has no stream of this protocol"
    yield from drawn(load(protocol), one_in)


def drawn(streams: Sequence[Stream], one_in: int) -> Iterator[tuple[int, Stream]]:
    """Yield the same sample from any streams."""
    full = os.environ.get("WIRETAPE_LAWS") == "full"
    providers: set[str] = set()
    for number, stream in enumerate(streams):
        # Drawn by the hash of the id, because neighbours are alike. Not by its lowest bits: tests/laws/variants.py uses
        # those, and every third stream would always get the same variant.
        drawn_by_hash = (zlib.crc32(stream.id.encode()) >> 8) % one_in == 0
        bounded = len(stream.body) <= _SAMPLED_BYTES_MAX
        if full or (bounded and (drawn_by_hash or stream.provider not in providers)):
            yield number, stream
            providers.add(stream.provider)


ABSENT = "CORPUS ABSENT: no captured streams in WIRETAPE_CORPUS or ../shared/corpus; tests over them are skipped"

needs_corpus = pytest.mark.skipif(corpus_folder() is None, reason=ABSENT)
