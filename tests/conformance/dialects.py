"""Write docs/internals/conformance-dialects.md: outside judges over Responses, Messages and crossed streams."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import anthropic
import openai
import openresponses_types

from tests.support.corpus import ABSENT, PROTOCOLS, load
from tests.support.markdown import table

from .cases import made
from .emitted import PAIRS, Emitted
from .helpers import missing, read_by_node
from .judged import all_helper_faults, allowed, chat_faults, faults, refused
from .schemas import SCHEMAS

PLACE: Final = Path(__file__).parents[2] / "docs/internals/conformance-dialects.md"
_CUTS: Final = 1
_NAMES: Final = {"chat": "chat", "responses": "Responses", "messages": "Messages"}

_TEXT: Final = """\
# How outside judges read Responses, Messages and crossed streams

Written by `make conformance-dialects`. Every captured stream is emitted to a client of each dialect, whole and cut at
a seeded place, with the modes of `on_partial`, `tools` and the lifecycle frames taking turns. The captures are
not part of this repository (`WIRETAPE_CORPUS`); their ids are names of public files. `make test` holds a sample to
this page, `make laws` checks all but Node.

The judges: the order checkers of `tests/conformance/order.py`; the types of openresponses-types {open_responses},
openai {openai} and anthropic {anthropic} for Python; their streaming helpers, and those of openai {node7} and {node6}
and @anthropic-ai/sdk {anthropic_node} for Node; the plain reader of `tests/laws/said.py`. A helper must raise where an
error is due and nowhere else, and hold the text, the calls, the usage and the object that our own folds hold.

## Faults

| from | to | streams | cut | order | types | helpers in Python | helpers in Node | meaning |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

openai's types close the list of error codes (`response.error.code`). Our codes are not in that list on purpose: clients
read them to decide whether they ask again. The helpers of openai raise on `response.incomplete`, which is its due.

## Types of streams that pass in their own dialect

Whole streams that every type of a publisher accepts. We repair what breaks clients, and invent nothing, so what an
older or foreign upstream leaves out stays out.

{types}
The rest, by the members that their own upstream leaves out or fills otherwise:

{reasons}{found}"""


class Row(NamedTuple):
    """The verdicts over one pair."""

    upstream: str
    client: str
    streams: int
    cut: int
    #: By kind.
    counts: Counter[str]
    found: list[str]
    whole: list[Emitted]


def judged(upstream: str, client: str) -> Row:
    """Judge every stream of one pair."""
    named = [
        (name, one)
        for number, stream in enumerate(load(PROTOCOLS[upstream]))
        for name, one in made(number, stream, upstream, client, cuts=_CUTS)
    ]
    found = [(_kind(each), f"{name}: {each}") for name, one in named for each in faults(one)]
    if client == "chat":
        found += [
            ("python", f"{one.id}: {each}") for one in load(PROTOCOLS[upstream]) for each in chat_faults(one, upstream)
        ]
    else:
        _, helpers = read_by_node((client, one.sent) for _, one in named)
        pairs = zip(named, helpers, strict=True)
        found += [("node", f"{name}: {each}") for (name, one), held in pairs for each in all_helper_faults(one, held)]
    whole = [one for name, one in named if "cut at None" in name]
    counts = Counter(kind for kind, _ in found)
    return Row(upstream, client, len(whole), len(named) - len(whole), counts, [each for _, each in found], whole)


def _kind(fault: str) -> str:
    judge = fault.partition(":")[0]
    if judge == "order" or judge.endswith("types"):
        return judge if judge == "order" else "types"
    return "python" if "-python" in judge else "meaning"


def document() -> tuple[str, int]:
    """Return the whole document and the number of faults."""
    rows = [judged(*pair) for pair in PAIRS]
    versions, _ = read_by_node([])
    same = [row for row in rows if row.upstream == row.client]
    found = [each for row in rows for each in row.found]
    text = _TEXT.format(
        open_responses=openresponses_types.__version__,
        openai=openai.__version__,
        anthropic=anthropic.__version__,
        node7=versions["openai-node 7"],
        node6=versions["openai-node 6"],
        anthropic_node=versions["anthropic-node"],
        rows="\n".join(map(_row, rows)),
        types=table(["dialect", "publisher", "streams", "as they came", "as sent"], _types(same)),
        reasons=table(["dialect", "publisher", "member", "streams"], _reasons(same)),
        found="".join(["\n## What was found\n\n", *(f"- {each}\n" for each in found[:50])]) if found else "",
    )
    return text, len(found)


def _row(row: Row) -> str:
    counts = [row.counts[kind] for kind in ("order", "types", "python", "node", "meaning")]
    node = "-" if row.client == "chat" else str(counts[3])
    cells = [_NAMES[row.upstream], _NAMES[row.client], row.streams, row.cut, *counts[:3], node, counts[4]]
    return "| " + " | ".join(map(str, cells)) + " |"


def _types(rows: Sequence[Row]) -> Iterator[list[Any]]:
    for row in rows:
        for publisher in SCHEMAS[row.client]:
            before = sum(not allowed(one, publisher) for one in row.whole)
            after = sum(not refused(one, publisher) for one in row.whole)
            yield [_NAMES[row.client], publisher, row.streams, before, after]


def _reasons(rows: Iterable[Row]) -> Iterator[list[Any]]:
    for row in rows:
        for publisher in SCHEMAS[row.client]:
            counts = Counter(member for one in row.whole for member in refused(one, publisher))
            yield from (
                [_NAMES[row.client], publisher, f"`{member}`", count] for member, count in sorted(counts.items())
            )


def main() -> int:
    """Write the document; return 1 if there is any fault."""
    if not load():
        sys.exit(ABSENT)
    if lack := missing():
        sys.exit(f"the helpers for Node cannot run: {lack}")
    text, found = document()
    PLACE.write_text(text, encoding="utf-8")
    print(f"{found} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
