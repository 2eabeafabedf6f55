"""Write docs/internals/conformance.md: what the official SDKs make of captured chat streams, raw and emitted."""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.corpus import ABSENT, Stream, load
from tests.support.markdown import table

from . import openai_node, openai_python, readers
from .damage import HELPER_RAISES, ROWS, Check, hit
from .said import Reading, Truth, truth

PLACE: Final = Path(__file__).parents[2] / "docs/internals/conformance.md"

_TEXT: Final = """\
# How the official SDKs read the streams

Written by `make conformance`. Every captured chat stream is read by the official openai
SDKs twice: the bytes as they came from the upstream, and the bytes that a client gets in the profile `strict` with its
default settings. What an SDK holds at the end is compared with our own folds over the same tape. The captures are not
part of this repository (`WIRETAPE_CORPUS`); their ids are names of public files. `make test` holds the Python half of
the right columns to these figures, `make test-node` the other half.

{streams} streams, {size} bytes, {providers} providers. openai {python} for Python, openai {node} for
Node.

## Python

Streams that show each damage. What was accumulated is compared where iterating and the helper
(`ChatCompletionStreamState`) came to the end.

{in_python}
`get_final_completion` raises its own `LengthFinishReasonError` for the same {length} streams either way: the upstream's
own `length`.

## Node

The same, read by adding up what the iterator gives, and once more by the helper (`.stream().finalChatCompletion()`),
which gives all or nothing.

{in_node}
{helper}
## Clients built on SDKs

{readers}
## Streams that end with an error

All others end without one.

{reasons}

{errors}"""

_REASONS: Final = {
    "upstream_error": "the upstream's own error in the stream, passed on in the form that every SDK raises",
    "malformed_call": "the upstream hands over a call whose arguments are not JSON: our error frame, and no `[DONE]`",
    "truncated": "the upstream's bytes end without its terminator: our error frame, and no `[DONE]`",
}


def document() -> str:
    """Return the whole document; the same captures and versions give the same bytes."""
    streams = load()
    plain = [truth(stream.body) for stream in streams]
    asked = [truth(stream.body, usage=True) for stream in streams]
    node, in_python, in_node = _readings(streams, plain, asked)
    return _TEXT.format(
        streams=len(streams),
        size=sum(len(stream.body) for stream in streams),
        providers=len({stream.provider for stream in streams}),
        python=openai_python.VERSION,
        node=node,
        in_python=_damage(in_python, plain, asked),
        length=_length(in_python),
        in_node=_damage([[pair.iterated for pair in column] for column in in_node], plain, asked),
        helper=_helper([[pair.helped for pair in column] for column in in_node], plain),
        reasons="\n".join(f"- `{code}`: {_REASONS[code]}" for code in sorted({due.error_due for due in plain} - {""})),
        errors=_errors(streams, plain),
        readers=readers.section(),
    )


def _readings(streams: Sequence[Stream], plain: Sequence[Truth], asked: Sequence[Truth]) -> Any:
    """In columns: as it came, sent, sent to a client that asked for usage."""
    columns = [[stream.body for stream in streams], [due.sent for due in plain], [due.sent for due in asked]]
    with warnings.catch_warnings(action="ignore"):  # pydantic's, over content that is not text
        in_python = [[openai_python.read(body) for body in column] for column in columns]
    version, pairs = openai_node.read([body for column in columns for body in column])
    size = len(streams)
    return version, in_python, [pairs[place : place + size] for place in range(0, 3 * size, size)]


def _damage(columns: Sequence[Sequence[Reading]], plain: Sequence[Truth], asked: Sequence[Truth]) -> str:
    came, sent, sent_asked = columns
    rows: list[list[object]] = []
    hits: tuple[set[int], set[int]] = (set(), set())
    for row in ROWS:
        if row == HELPER_RAISES and not any(said.helper_error for said in came):
            continue  # this reader has no helper of that kind
        usage = row == "usage differs"  # without having asked, a usage chunk is not due
        right = hit(row, sent_asked if usage else sent, asked if usage else plain)
        left = hit(row, came, plain)
        rows.append([row, len(left), len(right)])
        hits[0].update(left)
        hits[1].update(right)
    rows.append(["**any of these**", *(f"**{len(places)}**" for places in hits)])
    return table(["damage", "as it came", "`strict`"], rows)


def _length(columns: Sequence[Sequence[Reading]]) -> int:
    came, sent, _ = (
        {n for n, said in enumerate(column) if said.final_error.startswith("Length")} for column in columns
    )
    assert came == sent, "a genuine length was lost, or one was made up"
    return len(sent)


def _helper(columns: Sequence[Sequence[Reading]], plain: Sequence[Truth]) -> str:
    rows = [
        [
            name,
            *(sum(test(said, due) for said, due in zip(column, plain, strict=True)) for column in columns[:2]),
        ]
        for name, test in _HELPER.items()
    ]
    return table(["damage with the helper", "as it came", "`strict`"], rows)


def _other_text(said: Reading, due: Truth) -> bool:
    return any(
        index not in said.answers
        or (said.answers[index].text, said.answers[index].calls) != (answer.text, answer.calls)
        for index, answer in due.answers.items()
    )


_HELPER: Final[dict[str, Check]] = {
    "it raises, although no error is due": lambda said, due: bool(said.stream_error) and not due.error_due,
    "it holds other text or other calls": lambda said, due: not said.stream_error and _other_text(said, due),
}


def _errors(streams: Sequence[Stream], plain: Sequence[Truth]) -> str:
    pairs = zip(streams, plain, strict=True)
    return table(
        ["stream", "reason"], [(f"`{stream.id}`", f"`{due.error_due}`") for stream, due in pairs if due.error_due]
    )


def main() -> None:
    """Both SDKs and the captures must be there: half a document would not be the same."""
    if not load():
        sys.exit(ABSENT)
    if lack := openai_node.missing() or readers.missing():
        sys.exit(f"not every client can run: {lack}")
    PLACE.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
