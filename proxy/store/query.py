"""The filter language of the list of streams, one line of text:

    model:gpt ending:truncated tool:write_file state:dropped repair:finish_word gap:>5s since:1h "exact words"

All conditions must hold. Words without a name are searched in what the model said, as one phrase if they are quoted.
"""

import difflib
import re
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple, get_args

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import dumps
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Ending
from wiretape.events.core.settings import DIALECTS

from .store import Filter, Term

__all__ = ["FILTERS", "Query", "QueryError", "parse_query"]

_PART: Final = re.compile(r'(?:([A-Za-z_]+):)?(?:"([^"]*)"|(\S+))\s*')
_SPAN: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(us|ms|s|m|h|d)")
_CONTROL: Final = re.compile("[\x00-\x1f\ud800-\udfff]")
_UNIT_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class QueryError(WiretapeError):
    """A filter that cannot be understood; the message says what can."""


class Query(NamedTuple):
    """A filter as a store reads it. Whether a stream runs is known to the server, or to its folder's lock."""

    which: Filter
    live: bool | None = None


def parse_query(text: str, now: float) -> Query:
    """Return the meaning of a filter; `now` is in seconds since 1970. Raise `QueryError`."""
    if _CONTROL.search(text):
        raise QueryError("A filter is one line without control characters.")
    given: dict[str, str] = {}
    phrases: list[str] = []
    for given_name, quoted, bare in _PART.findall(text.strip()):
        value, name = quoted or bare, str(given_name).lower()
        if not name:
            phrases.append('"' + value.replace('"', '""') + '"')
        elif name not in FILTERS:
            near = "".join(difflib.get_close_matches(name, FILTERS, 1))
            hint = f"did you mean {near}:?" if near else f"known: {', '.join(FILTERS)}"
            raise QueryError(f'Unknown filter {name}: ({hint}). Put words to search for in quotes: "{name}:..."')
        elif not value or given.setdefault(name, value) != value:
            raise QueryError(f"{name}: must be given once, with a value.")
    if "tool" in given and "state" in given:  # of the same call
        given["tool"] += f"\0{given.pop('state')}"
    live = FILTERS["live"](given.pop("live"), now).values[0] == 1 if "live" in given else None
    terms = tuple(FILTERS[name](value, now) for name, value in given.items())
    return Query(Filter(terms=terms, text=" ".join(phrases)), live)


_Make = Callable[[str, float], Term]


def _part(column: str) -> _Make:
    return lambda value, _: Term(f"instr(lower({column}), ?) > 0", (value.lower(),))


def _word(column: str, *words: str, sql: str = "{} = ?") -> _Make:
    def term(value: str, _: float) -> Term:
        if words and value not in words:
            raise QueryError(f"{column}: must be one of {', '.join(words)}.")
        return Term(sql.format(column), (words.index(value) if words == _NO_YES else value,))

    return term


def _tool(value: str, now: float) -> Term:
    name, _, state = value.partition("\0")
    begin = f"[{dumps(name).decode()},"
    return Term("instr(tools, ?) > 0", (begin + FILTERS["state"](state, now).values[0][1:] if state else begin,))


def _state(value: str, now: float) -> Term:
    """The state in which its own stream left a call: no later request has answered it there, nor abandoned it."""
    _word("state", *(state.value for state in State if state is not State.ABANDONED))(value, now)
    return Term("instr(tools, ?) > 0", (f',"{value}"]',))


def _gap(value: str, _: float) -> Term:
    sign = "<" if value.startswith("<") else ">"
    limit = min(_span_s("gap", value.lstrip("<>="), "5s, 300ms or 2m"), _UNIT_S["d"] * 365) * 1e6
    return Term(f"silence_us {sign} ?", (int(limit),))


def _time(sign: str) -> _Make:
    """A time, or how long ago it was."""

    def term(value: str, now: float) -> Term:
        try:
            at = datetime.fromisoformat(value).astimezone().timestamp()
        except (ValueError, OverflowError):
            at = now - _span_s("since, until", value, "1h, 2d, or a time such as 2026-11-20T09:30")
        return Term(f"created {sign} ?", (int(at),))

    return term


def _span_s(name: str, value: str, example: str) -> float:
    match = _SPAN.fullmatch(value)
    if match is None:
        raise QueryError(f"{name}: must be like {example}.")
    return float(match[1]) * _UNIT_S[match[2]]


_NO_YES: Final = ("no", "yes")
#: Every name of the language. `live` is left to the caller.
FILTERS: Final[dict[str, _Make]] = {
    "model": _part("model"),
    "ending": _word("ending", *get_args(Ending)),
    "tool": _tool,
    "state": _state,
    "repair": lambda value, _: Term("instr(repairs, ?) > 0", (f"{dumps(value).decode()}:",)),
    "gap": _gap,
    "lost": _word("lost", *_NO_YES, sql="({} > 0) = (? = 1)"),
    "route": _word("route"),
    "dialect": _word("dialect", *DIALECTS),
    "path": _part("path"),
    "run": _word("run"),
    "since": _time(">="),
    "until": _time("<"),
    "live": _word("live", *_NO_YES),
}
