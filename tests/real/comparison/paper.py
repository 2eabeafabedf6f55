"""Writes docs/internals/replay-comparison.md."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tests.replay.raw_client import Heard
from tests.replay.scenarios import SCENARIOS

from ..clients import versions
from ..report import table
from .peers import PEERS, Peer

__all__ = ["PLACE", "Found", "document"]

PLACE: Final = Path(__file__).parents[3] / "docs/internals/replay-comparison.md"

_HEAD: Final = """\
# The seven scenarios, through other recorders and through this one

Written by `make replay-comparison`. A scripted upstream on a real socket plays each
scenario ([tests/replay/scenarios.py](../tests/replay/scenarios.py)). Every recorder records it once, with its own
defaults, and plays it back without the upstream, at the recorded speed where it knows one. The client is a bare socket
that notes each read (VCR.py works inside its client, so that is httpx). The recorders are pinned with hashes and live
in environments of their own.

- **recorded**: there is something to play.
- **while recording**: when the first byte of the body came (directly after {first_ms:.0f} ms in `text`), and whether
  what the client got was altered by being recorded.
- **bytes**, **reads**, **ending**: the replay's are those of the upstream: SHA-256 of the body; the list of read sizes;
  status, Retry-After and how the connection ended.
- **error**: the distance of a read from its scripted time, median and maximum, if the number of reads is right. The row
  without a recorder shows the machine's own error: the upstream itself, asked twice. A replay that misses 5 ms runs up
  to three times, and the best counts. A scenario with too few reads is recorded and played up to three times in every
  row, because a busy machine joins reads.
- **secrets kept**: what of the caller's key, a cookie of the upstream and a key inside the prompt is found in what was
  written (`--exact` writes nothing at all where there is a secret, and says where it is).

"""

_TAIL: Final = """
`Wiretape` is what `wiretape record` writes by default: ids, times and fingerprints are renamed and secrets
are taken out, so that a new recording of the same content is no diff. So its bytes differ, on purpose; each read still
ends at the same place of the same frame.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """One scenario through one recorder."""

    peer: Peer
    name: str
    direct: Heard
    live: Heard | None
    again: Heard | None
    wrong: str

    @property
    def recorded(self) -> bool:
        """Whether there is something to play."""
        return self.again is not None and self.again.status == self.direct.status

    @property
    def whole(self) -> bool:
        """Whether nothing was lost."""
        return self.recorded and all((self.bytes, self.reads, self.ending))

    @property
    def bytes(self) -> bool:
        """Whether they are the same."""
        return self.again is not None and self.again.sha256 == self.direct.sha256

    @property
    def reads(self) -> bool:
        """Whether their sizes are the same."""
        return self.again is not None and self.again.sizes == self.direct.sizes

    @property
    def ending(self) -> bool:
        """Whether status, Retry-After and end are the same."""
        one, two = self.direct, self.again
        return two is not None and (one.status, one.ending, one.header("retry-after")) == (
            two.status,
            two.ending,
            two.header("retry-after"),
        )

    def errors_ms(self) -> list[float]:
        """Compare each read with the upstream's script and its times."""
        due = schedule(self.name)
        if self.again is None or len(self.again.reads) != len(due):
            return []
        began = self.again.head_s
        return sorted(abs(at - began - when) * 1_000 for (at, _), when in zip(self.again.reads, due, strict=True))

    def cells(self) -> list[str]:
        """Compare everything after the names."""
        if self.wrong == "NOT INSTALLED":
            return ["**NOT INSTALLED, not run**", "", "", "", "", ""]
        if not self.recorded or self.again is None:
            why = self.wrong or (f"replay: {self.again.status} {self.again.ending}" if self.again else "")
            return ["**no**", self._live(), "-", "-", why or "-", "-"]
        errors = self.errors_ms()
        error = f"{median(errors):.1f} / {errors[-1]:.1f} ms" if errors else "-"
        return ["yes", self._live(), self._bytes(), self._reads(), self._ending(), error]

    def _live(self) -> str:
        live = self.live
        if live is None:
            return "-"
        first = f"{live.reads[0][0] * 1_000:.0f} ms" if live.reads else "nothing"
        if live.status != self.direct.status:
            return f"{first}, **{live.status or live.ending}**"
        return first if live.sha256 == self.direct.sha256 else f"{first}, **altered**"

    def _bytes(self) -> str:
        assert self.again is not None
        invented = _finishes(self.again.body) and not _finishes(self.direct.body)
        return "**no, it invents a finish**" if invented else _said(self.bytes)

    def _reads(self) -> str:
        assert self.again is not None
        there, here = len(self.direct.reads), len(self.again.reads)
        if self.reads:
            return "yes"
        return f"{here}, other sizes" if here == there else f"**{here} of {there}**"

    def _ending(self) -> str:
        assert self.again is not None
        if self.ending:
            return "yes"
        if self.again.ending == self.direct.ending:
            return f"**Retry-After: {self.again.header('retry-after')}**"
        return f"**{self.again.ending}**"


def schedule(name: str) -> list[float]:
    """Seconds since the head at which each piece is due."""
    at = 0.0
    due: list[float] = []
    for delay_s, what in SCENARIOS[name].script.steps:
        at += delay_s
        if isinstance(what, bytes):
            due.append(at)
    return due


def _finishes(body: bytes) -> bool:
    """Whether some choice says why it ended."""
    return re.search(rb'"finish_reason": ?"', body) is not None


def _said(good: bool) -> str:
    return "yes" if good else "**no**"


def document(found: Sequence[Found], secrets: Mapping[str, Sequence[str]]) -> str:
    """The whole text."""
    first = next(each for each in found if each.name == "text")
    parts = [_HEAD.format(first_ms=first.direct.reads[0][0] * 1_000), _summary(found, secrets)]
    for name, scenario in SCENARIOS.items():
        mine = [each for each in found if each.name == name]
        reads = len(mine[0].direct.reads)
        parts.append(f"\n## {name}: {scenario.says}\n\nThe upstream: {reads} reads, then {scenario.heard}.\n\n")
        head = ["recorder", "recorded", "first byte", "bytes", "reads", "ending", "error p50 / max"]
        parts.append(table(head, [[each.peer.name, *each.cells()] for each in mine]))
    known = versions()
    packages = sorted({peer.package for peer in PEERS} - {"wiretape"})
    listed = table(["package", "version"], [(package, known.get(package, "")) for package in packages])
    return "".join([*parts, _TAIL, "\n## Versions\n\n", listed])


def _summary(found: Sequence[Found], secrets: Mapping[str, Sequence[str]]) -> str:
    """Of how many of the seven."""
    rows: list[list[str]] = []
    for peer in PEERS:
        own = [each for each in found if each.peer is peer]
        counts = [
            sum(getattr(each, what) and each.recorded for each in own)
            for what in ("recorded", "bytes", "reads", "ending")
        ]
        errors = [error for each in own if each.recorded for error in each.errors_ms()]
        kept = secrets.get(peer.name)
        worst = f"{max(errors):.1f} ms" if errors else "-"
        cells = [
            *(f"{count} of {len(own)}" for count in counts),
            worst,
            "not run" if kept is None else ", ".join(kept) or "none",
        ]
        rows.append([peer.name, *cells])
    return table(["recorder", "recorded", "bytes", "reads", "ending", "worst error", "secrets kept"], rows)
