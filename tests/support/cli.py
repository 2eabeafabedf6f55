"""Commands of `wiretape` run in this process; the fixture `run` of tests/proxy runs them."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from wiretape.events.tape.record import Record, encode


class Said(NamedTuple):
    """The outcome of one command."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Said]


def put(folder: Path, stream: str, records: Iterable[Record]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stream}.tape"
    path.write_bytes(b"".join(encode(record) for record in records))
    return path
