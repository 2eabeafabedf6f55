"""Judge the cut matrix, and write it: one table an ending, the clients down, the ways across."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.support.markdown import table

from .script import DIRECT, ENDINGS, PEERS, WAYS, Found

#: For one user turn.
REQUESTS_MAX: Final = 5

_WARNING: Final = re.compile(r"⚠ .+?(no result seen|the answer is incomplete)", re.DOTALL)
_SUCCESSES: Final = ("stop", "tool_calls")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One cell in words."""

    #: What the client's user sees.
    word: str
    #: What must not be, whether through Wiretape or not.
    faults: tuple[str, ...]
    #: The provider's words pass unchanged, and clients treat them as they do directly: `length` with live tools, and an
    #: error after which they ask again.
    known: bool = False
    #: Whether Wiretape had its say.
    through: bool = True

    @property
    def defect(self) -> bool:
        """Whether the matrix fails."""
        return self.through and bool(self.faults) and not self.known


def judge(found: Found) -> Verdict:
    """Judge a cell whose call was never complete."""
    faults = tuple(_faults(found))
    many, endless = found.requests > REQUESTS_MAX, _word(found) == "no end"
    length = found.cell.model.ending == "length" and found.cell.way in ("error", "both") and not many and not endless
    asks = found.cell.model.ending == "server_error" and not found.ran and _success(found) is None and not endless
    through = found.cell.way != DIRECT
    return Verdict(_word(found), faults, known=through and bool(faults) and (length or asks), through=through)


def _faults(found: Found) -> Iterator[str]:
    for arguments in found.ran:
        yield f"ran `{arguments or 'nothing'}`"
    if (success := _success(found)) is not None:
        yield f"success, finish `{success}`" if success else "success"
    if found.requests > REQUESTS_MAX:
        yield f"{found.requests} requests"
    if found.cell.way != DIRECT and _word(found) == "no end":
        yield "no end"


def _success(found: Found) -> str | None:
    """The finish with which it claims to have succeeded. Where a client tells none that is a claim, too, unless it did
    get `length` and nothing after it.
    """
    result = found.result
    if result["error"] is not None or _warned(result):
        return None
    finish: str | None = result["turns"][-1]["finish"] if result["turns"] else None
    if finish is None and result["turns"] and found.cell.model.ending == "length" and found.requests == 1:
        return None
    return finish or "" if finish is None or finish in _SUCCESSES else None


def _warned(result: dict[str, Any]) -> bool:
    return any(_WARNING.search(turn["text"] or "") for turn in result["turns"])


def _word(found: Found) -> str:
    """Return what this client's user sees."""
    result = found.result
    error = result["error"]
    if error is not None and error["class"] == "no end":
        return "no end"
    if error is not None:
        return "raises ⚠" if _WARNING.search(error["message"] or "") or _warned(result) else "raises"
    if _warned(result):
        return "text ⚠"
    finish = result["turns"][-1]["finish"] if result["turns"] else None
    return f"finish `{finish}`" if finish else "no finish" if finish == "" else "finish not reported"


_COLUMNS: Final = (DIRECT, *WAYS)

_HEADS: Final = {
    DIRECT: "direct",
    "error": "`error`",
    "warn": "`warn`",
    "both": "`both`",
    "held": "`error`, `held`",
    "both-held": "`both`, `held`",
}

_TEXT: Final = """\
## Streams that break inside a tool call

{counts}
{sections}
{defects}{known}"""


def summary(found: Sequence[Found]) -> str:
    """Return one line."""
    through = [(each, judge(each)) for each in found if each.cell.way != DIRECT]
    defects = sum(verdict.defect for _, verdict in through)
    known = sum(verdict.known for _, verdict in through)
    return (
        f"cut matrix: {len(found)} cells, {len(through)} of them through Wiretape: {defects} do not hold, "
        f"{known} are known exceptions; at most {max((each.requests for each, _ in through), default=0)} requests of a "
        f"client, {max((each.asked for each, _ in through), default=0)} at the provider"
    )


def document(found: Sequence[Found]) -> str:
    """Return the chapter."""
    defects = [each for each in found if judge(each).defect]
    known = [each for each in found if judge(each).known]
    return _TEXT.format(
        counts=table(
            ["of the cells", *_HEADS.values()],
            [[name, *map(count, _by_way(found))] for name, count in _COUNTS.items()],
        ),
        sections="\n".join(_section(ending, found) for ending in ENDINGS),
        defects=_listed("What does not hold", defects, found),
        known=_listed("The known exceptions, with the direct result", known, found),
    )


#: What is counted of the cells of one way.
_COUNTS: Final[Mapping[str, Callable[[Sequence[Found]], int]]] = {
    "cells": len,
    "a tool ran with missing or altered arguments": lambda cells: sum(bool(each.ran) for each in cells),
    "success reported": lambda cells: sum("success" in "; ".join(judge(each).faults) for each in cells),
    "no end": lambda cells: sum(judge(each).word == "no end" for each in cells),
    f"more than {REQUESTS_MAX} requests of a client": lambda cells: sum(each.requests > REQUESTS_MAX for each in cells),
    "most requests of a client": lambda cells: max((each.requests for each in cells), default=0),
    f"more than {REQUESTS_MAX} requests at the provider": lambda cells: sum(
        each.asked > REQUESTS_MAX for each in cells
    ),
    "most requests at the provider": lambda cells: max((each.asked for each in cells), default=0),
}


def _by_way(found: Sequence[Found]) -> list[list[Found]]:
    return [[each for each in found if each.cell.way == way] for way in _COLUMNS]


def _section(ending: str, found: Sequence[Found]) -> str:
    rows: list[list[str]] = []
    for peer in PEERS:
        mine = [each for each in found if each.cell.peer == peer and each.cell.model.ending == ending]
        rows.append([peer.name, *(_cuts([each for each in mine if each.cell.way == way]) for way in _COLUMNS)])
    return f"### `{ending}`: {ENDINGS[ending]}\n\n" + table(["client", *_HEADS.values()], rows)


def _cuts(found: Iterable[Found]) -> str:
    """One word where all cuts are alike."""
    said: defaultdict[str, list[str]] = defaultdict(list)
    for each in found:
        said[_said(each)].append(each.cell.model.cut)
    if len(said) == 1:
        return next(iter(said))
    return "<br>".join(f"{', '.join(cuts)}: {word}" for word, cuts in said.items()) or "-"


def _said(found: Found) -> str:
    verdict = judge(found)
    word = f"**{'; '.join(verdict.faults)}**" if verdict.faults else verdict.word
    asked = "" if found.asked == 1 else f" ({found.requests})"
    if found.asked != found.requests:
        asked = f" ({found.requests}→{found.asked})"
    return (word + asked).replace("|", "\\|")


def _listed(title: str, chosen: Sequence[Found], found: Sequence[Found]) -> str:
    if not chosen:
        return ""
    direct = {(each.cell.peer, each.cell.model.ending, each.cell.model.cut): each for each in _by_way(found)[0]}
    rows = [
        [
            each.cell.peer.name,
            f"`{each.cell.model.ending}`, {each.cell.model.cut}",
            _HEADS[each.cell.way],
            _said(each),
            _said(direct[each.cell.peer, each.cell.model.ending, each.cell.model.cut]),
        ]
        for each in chosen
    ]
    return f"\n### {title}\n\n" + table(["client", "stream", "way", "through Wiretape", "direct"], rows)
