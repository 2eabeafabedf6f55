"""Judge a cell: nothing ran, no failure looked like a success, and no client retried for ever."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from .cells import DIRECT, Found

__all__ = ["REQUESTS_MAX", "Verdict", "judge"]

#: For one user turn.
REQUESTS_MAX: Final = 5

_WARNING: Final = re.compile(r"⚠ .+?(Nothing was executed|the answer is incomplete)", re.DOTALL)
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
    """Of a cell in which the call never came whole."""
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
