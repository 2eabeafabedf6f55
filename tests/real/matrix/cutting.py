"""The cut matrix in words: one table an ending, the clients down, the ways across."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from ..report import table
from .cells import DIRECT, WAYS, Found
from .peers import PEERS
from .script import ENDINGS
from .verdict import REQUESTS_MAX, Verdict, judge

__all__ = ["counts", "document", "summary"]

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
    """One line."""
    through = [(each, judge(each)) for each in found if each.cell.way != DIRECT]
    defects = sum(verdict.defect for _, verdict in through)
    known = sum(verdict.known for _, verdict in through)
    return (
        f"cut matrix: {len(found)} cells, {len(through)} of them through Wiretape: {defects} do not hold, "
        f"{known} are known exceptions; at most {max((each.requests for each, _ in through), default=0)} requests of a "
        f"client, {max((each.asked for each, _ in through), default=0)} at the provider"
    )


def document(found: Sequence[Found]) -> str:
    """The chapter."""
    defects = [each for each in found if judge(each).defect]
    known = [each for each in found if judge(each).known]
    return _TEXT.format(
        counts=counts(found),
        sections="\n".join(_section(ending, found) for ending in ENDINGS),
        defects=_listed("What does not hold", defects, found),
        known=_listed("The known exceptions, with the direct result", known, found),
    )


def counts(found: Sequence[Found]) -> str:
    """How often what must not be was, in each way."""
    rows = [
        ("cells", [len(each) for each in _by_way(found)]),
        ("a tool ran with missing or altered arguments", [sum(bool(f.ran) for f in each) for each in _by_way(found)]),
        ("success reported", [sum("success" in _faults(judge(f)) for f in each) for each in _by_way(found)]),
        ("no end", [sum(judge(f).word == "no end" for f in each) for each in _by_way(found)]),
        (
            f"more than {REQUESTS_MAX} requests of a client",
            [sum(f.requests > REQUESTS_MAX for f in each) for each in _by_way(found)],
        ),
        ("most requests of a client", [max((f.requests for f in each), default=0) for each in _by_way(found)]),
        (
            f"more than {REQUESTS_MAX} requests at the provider",
            [sum(f.asked > REQUESTS_MAX for f in each) for each in _by_way(found)],
        ),
        (
            "most requests at the provider",
            [max((f.asked for f in each), default=0) for each in _by_way(found)],
        ),
    ]
    return table(["of the cells", *_HEADS.values()], [[name, *numbers] for name, numbers in rows])


def _by_way(found: Sequence[Found]) -> list[list[Found]]:
    return [[each for each in found if each.cell.way == way] for way in _COLUMNS]


def _faults(verdict: Verdict) -> str:
    return "; ".join(verdict.faults)


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
    word = f"**{_faults(verdict)}**" if verdict.faults else verdict.word
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
