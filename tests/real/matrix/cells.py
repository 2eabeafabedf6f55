"""What is asked: every client in every way, of every ending at every cut."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from ..scenarios import KEY
from .peers import Peer
from .script import CUTS, ENDINGS, Model

__all__ = ["DIRECT", "PATIENCE_S", "START_S", "WAYS", "Cell", "Found", "cells", "configuration"]

DIRECT: Final = "direct"

#: Each is a route of one Wiretape, by what stands in its table of wiretape.toml.
WAYS: Final[Mapping[str, Mapping[str, str]]] = {
    "error": {"on_partial": "error"},
    "warn": {"on_partial": "warn"},
    "both": {"on_partial": "both"},
    "held": {"on_partial": "error", "tools": "held"},
    "both-held": {"on_partial": "both", "tools": "held"},
}

#: What a tool offers of whose arguments none is required: so that nothing but ours keeps `{}` from being run.
_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of one town",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}

#: The timeout that clients are given which can be given one.
PATIENCE_S: Final = 8
#: What the program of a client takes at most, with its start on a busy machine.
START_S: Final = 120

_NUMBERS: Final = count(1)


@dataclass(frozen=True, slots=True)
class Cell:
    """One user turn of one client."""

    peer: Peer
    way: str
    model: Model

    def question(self, base_url: str, folder: Path) -> dict[str, Any]:
        """What a driver is told. Nothing is said of retries: each client asks again as often as it does by itself."""
        return {
            "base_url": base_url,
            "key": KEY,
            "model": self.model.name,
            "prompt": "How is the weather in Paris for the next three days?",
            "tool": _TOOL,
            "usage": False,
            "retries": None,
            "mode": self.peer.client.mode,
            "turns": 8,
            "timeout": START_S if self.peer.program else PATIENCE_S,
            "record": str(folder / "ran"),
            "stop": str(folder / "stop"),
        }


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it."""

    cell: Cell
    #: As the driver says it: turns and error.
    result: dict[str, Any]
    #: With what the tool was run, as the tool itself wrote it down.
    ran: list[str]
    #: At the upstream.
    requests: int
    #: Where tapes are looked into: the bytes that the client got, one a request.
    streams: list[bytes] = field(default_factory=list[bytes])


def cells(peer: Peer) -> Iterator[Cell]:
    """All of one client, the slow ones first."""
    for ending in sorted(ENDINGS, key=lambda name: name != "stall"):
        for cut in (cut for cut in CUTS if cut in peer.cuts):
            for way in (DIRECT, *WAYS):
                yield Cell(peer, way, Model(ending, cut, peer.tool, next(_NUMBERS)))


def configuration(upstream: str) -> str:
    """A wiretape.toml."""
    lines = [f'upstream = "{upstream}"', "idle_s = 2"]
    for name, settings in WAYS.items():
        lines += ["", f"[routes.{name}]", f'upstream = "{upstream}"']
        lines += [f'{key} = "{value}"' for key, value in settings.items()]
    return "\n".join(lines) + "\n"
