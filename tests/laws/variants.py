"""The same stream in other reads, line ends and with a BOM: nothing that a client or a fold sees may change."""

import itertools
import os
import random
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from wiretape.events.wire.sse import Decoder

__all__ = ["FULL", "SPLITS", "VARIANTS", "Variant", "chosen", "frame_ends", "reads", "rewritten"]

#: `make laws` goes through the full products; the default suite takes one combination a stream, by the hash of its id.
FULL = os.environ.get("WIRETAPE_LAWS") == "full"

BOM = b"\xef\xbb\xbf"
SPLITS = ("whole", "1 byte", "2 bytes", "random 1", "random 2", "random 3")
LINE_ENDS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}


class Variant(NamedTuple):
    """One way of sending the same stream."""

    split: str
    line_end: str
    bom: bool


VARIANTS = [Variant(*parts) for parts in itertools.product(SPLITS, LINE_ENDS, (False, True))]


def chosen(key: str) -> list[Variant]:
    """The variants for one stream."""
    return VARIANTS if FULL else [VARIANTS[zlib.crc32(key.encode()) % len(VARIANTS)]]


def rewritten(body: bytes, variant: Variant) -> bytes:
    """The body with this variant's line ends, which stand only between lines: inside JSON they are escaped."""
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return (BOM if variant.bom else b"") + lines.replace(b"\n", LINE_ENDS[variant.line_end])


def reads(body: bytes, split: str, key: str) -> Iterator[bytes]:
    """The body cut into reads; the random cuts hang on the stream's key alone."""
    if split == "whole":
        yield from [body] if body else []
    elif split.startswith("random"):
        chance = random.Random(f"{key} {split}")  # noqa: S311 - a seeded cut, not a secret
        start = 0
        while start < len(body):
            end = start + chance.choice((1, 2, 3, 7, 40, 200, 1_000, 20_000))
            yield body[start:end]
            start = end
    else:
        size = int(split.partition(" ")[0])
        yield from (body[start : start + size] for start in range(0, len(body), size))


def frame_ends(body: bytes) -> Iterator[int]:
    """Yield the place after every frame."""
    at = 0
    for frame in Decoder().feed(body):
        at += len(frame.raw)
        yield at
