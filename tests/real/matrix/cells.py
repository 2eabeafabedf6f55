"""The cells of the matrix: every client in every mode, with every ending at every cut."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from ..scenarios import KEY, question
from .peers import Peer
from .script import CUTS, ENDINGS, TURNS, Model

__all__ = ["DIRECT", "LIFECYCLE_WAYS", "WAYS", "Cell", "Found", "cells", "configuration", "conversations"]

DIRECT: Final = "direct"

#: Each is a route of one Wiretape, with its table in wiretape.toml.
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

#: In which the lifecycle is looked at: the defaults, and calls that are shown only when they are whole.
LIFECYCLE_WAYS: Final = ("error", "held")

_SLOW: Final = ("stall", "server_error")
_NUMBERS: Final = count(1)


@dataclass(frozen=True, slots=True)
class Cell:
    """One user turn of one client."""

    peer: Peer
    way: str
    model: Model

    @property
    def patience_s(self) -> float:
        """How long after its first request an end is waited for. Through Wiretape everything ends by itself."""
        if self.model.ending == "server_error":
            return 90
        return self.peer.patience_s if self.way == DIRECT else 45

    def question(self, base_url: str, folder: Path) -> dict[str, Any]:
        """Return the driver's instructions. They say nothing about retries, so that each client uses its default."""
        return question(
            base_url,
            KEY,
            self.model.name,
            "How is the weather in Paris for the next three days?",
            tool=_TOOL,
            mode=self.peer.client.mode,
            timeout=self.peer.timeout_s,
            record=str(folder / "ran"),
            stop=str(folder / "stop"),
        )


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a cell."""

    cell: Cell
    #: As the driver says it: turns and error.
    result: dict[str, Any]
    #: With what the tool was run, as the tool itself wrote it down.
    ran: list[str]
    #: At the provider.
    asked: int
    #: What the client got, a stream a request, where it went through Wiretape and the tapes have been read.
    streams: list[bytes] | None = None

    @property
    def requests(self) -> int:
        """The client's own."""
        return self.asked if self.streams is None else len(self.streams)


def cells(peer: Peer) -> Iterator[Cell]:
    """All of one client, the slow ones first."""
    for ending in sorted(ENDINGS, key=lambda name: name not in _SLOW):
        for cut in (cut for cut in CUTS if cut in peer.cuts):
            for way in (DIRECT, *WAYS):
                if ending != "server_error" or (cut == "member" and way in (DIRECT, "error")):
                    yield Cell(peer, way, Model(ending, cut, peer.tool, next(_NUMBERS)))


def conversations(peer: Peer) -> Iterator[Cell]:
    """What comes whole: two turns."""
    for turns in TURNS:
        for way in (DIRECT, *LIFECYCLE_WAYS):
            yield Cell(peer, way, Model("whole", turns, peer.tool, next(_NUMBERS)))


def configuration(upstream: str) -> str:
    """A wiretape.toml."""
    lines = [f'upstream = "{upstream}"', "idle_s = 2"]
    for name, settings in WAYS.items():
        lines += ["", f"[routes.{name}]", f'upstream = "{upstream}"']
        lines += [f'{key} = "{value}"' for key, value in settings.items()]
    return "\n".join(lines) + "\n"
