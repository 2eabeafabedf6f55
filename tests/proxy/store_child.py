"""A process that writes tapes and prints what was acknowledged, to be killed or starved of disk space."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import trio

from tests.proxy.store_cases import Batch, stream_of
from wiretape.events.tape.record import Record, encode
from wiretape.proxy.store.files import FileStore, open_files
from wiretape.proxy.store.tape_file import Durability

#: What the names of a child's streams begin with; a number follows.
PREFIX = "k"


def batches_of(stream: str) -> list[Batch]:
    """What a child writes on the tape of this name, so that a parent knows it too."""
    return stream_of(stream, reads=5 + int(stream.removeprefix(PREFIX)) % 30)


def say(line: str) -> None:
    """Print a line in one write, so that it comes whole or not at all."""
    os.write(1, line.encode() + b"\n")


class Buffered:
    """The negative control: the same lines through Python's own buffer, acknowledged when `write` returns."""

    def __init__(self, root: Path) -> None:
        self._live = root / "live"
        self._live.mkdir(parents=True)
        self._files: dict[str, BinaryIO] = {}

    async def create(self, stream: str) -> None:
        """As a store."""
        self._files[stream] = (self._live / f"{stream}.tape").open("wb")

    async def append(self, stream: str, records: Sequence[Record]) -> None:
        """As a store."""
        self._files[stream].write(b"".join(encode(record) for record in records))
        if records[-1].kind == "end":
            self._files.pop(stream).close()


async def append_for_ever(root: Path, durability: Durability) -> None:
    """Eight streams in turn, one ending and one beginning every few batches."""
    async with open_files(root, durability=durability, warn=say) as store:
        await _append(store)


async def _append(store: FileStore | Buffered) -> None:
    number = 0
    going: list[tuple[str, list[Batch]]] = []
    while True:
        while len(going) < 8:
            stream = f"{PREFIX}{number}"
            going.append((stream, batches_of(stream)))
            await store.create(stream)
            number += 1
        for place in range(len(going)):
            stream, batches = going[place]
            batch = batches.pop(0)
            await store.append(stream, batch)
            say(f"{stream} {batch[-1].n}")
        going = [each for each in going if each[1]]
        await trio.lowlevel.checkpoint()


if __name__ == "__main__":
    mode, folder = sys.argv[1], Path(sys.argv[2])
    if mode == "buffered":
        trio.run(_append, Buffered(folder))
    else:
        trio.run(partial(append_for_ever, folder, "disk" if mode == "disk" else "process"))
