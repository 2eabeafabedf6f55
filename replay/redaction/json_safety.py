"""Arguments that were JSON stay JSON: what would be none any more without its secrets is replaced whole

Whoever reads arguments parses them. Whatever was found in them, and by whichever rule, is held against that here.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from ..sealed.edits import Text
from .spans import Form, Span
from .strings import Joined, Piece, pieces_of

__all__ = ["keep_json"]

#: As long as any placeholder: what stands there does not matter to who parses it.
_PLACEHOLDER: Final = "[redacted]"
_NUMBERS: Final = frozenset({"bytes", "digits"})


def keep_json(several: Iterable[Joined], parts: Sequence[Text], taken: dict[int, list[Span]]) -> None:
    """The spans, so changed that each string, and each of `several` pieces, is JSON behind them if it was before."""
    if not any(taken.values()):
        return
    for number in [*taken]:
        for piece in pieces_of(parts[number], number, names=False):
            _keep(Joined.of([piece]), taken)
    for joined in several:
        _keep(joined, taken)


def _keep(joined: Joined, taken: dict[int, list[Span]]) -> None:
    if joined.said.lstrip()[:1] not in ("{", "[") or not all(piece.path for piece in joined.pieces):
        return
    inside = [_inside(piece, taken.get(piece.text, ())) for piece in joined.pieces]
    if not any(inside) or not _is_json(joined.said):
        return
    left = "".join(_left(piece, spans) for piece, spans in zip(joined.pieces, inside, strict=True))
    if not _is_json(left):
        _replace(joined, inside, taken)


def _inside(piece: Piece, spans: Iterable[Span]) -> list[Span]:
    """Those in this string, or all of it with its quotes."""
    start, end = piece.places[0] - 1, piece.places[-1] + 1
    return [span for span in spans if start <= span.start and span.end <= end]


def _left(piece: Piece, spans: Sequence[Span]) -> str:
    """What a reader has of it then."""
    said, at = "", 0
    for span in spans:
        first, last = (bisect_left(piece.places, place) for place in (span.start, span.end))
        new = "0" if span.vendor in _NUMBERS else _PLACEHOLDER
        if span.form == "arguments":
            new = json.dumps({"redacted": new})
        said += piece.said[at:first] + (new if span.secret is not None else "")
        at = last
    return said + piece.said[at:]


def _replace(joined: Joined, inside: Sequence[Sequence[Span]], taken: dict[int, list[Span]]) -> None:
    """One placeholder in the first piece, and nothing in the others."""
    vendor = "path" if any(span.vendor == "path" for spans in inside for span in spans) else "secret"
    for at, (piece, spans) in enumerate(zip(joined.pieces, inside, strict=True)):
        others = [span for span in taken.get(piece.text, ()) if span not in spans]
        secret = joined.said if at == 0 else None
        form: Form = "inside" if at == 0 else "plain"
        others.append(Span(piece.text, piece.places[0], piece.places[-1], piece.path, vendor, secret, form))
        taken[piece.text] = sorted(others, key=lambda span: span.start)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, strict=False)
    except (RecursionError, ValueError):
        return False
    return True
