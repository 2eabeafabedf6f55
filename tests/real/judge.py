"""Whether a client got what it was due: the same as direct, or what our folds hold where direct is wrong."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import trio

from wiretape.events.emit import Summariser
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader

#: From a client's last byte to the last record of its tape.
_TAPED_S: Final = 20.0
_POLL_S: Final = 0.02

#: What differs from one request to the next, and means nothing.
_RANDOM: Final = re.compile(
    r"(call_|chatcmpl-|functions\.)[\w.:-]{6,}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|http://127\.0\.0\.1:\d+|(/[\w.-]+){3,}"
)

#: Every stream with a call has these, or the request causes them: they repair no fault.
_NO_CURES: Final = frozenset({"lifecycle", "usage_not_asked"})


@dataclass(slots=True)
class Taped:
    """One stream, as its tape has it."""

    text: str = ""
    calls: list[list[Any]] = field(default_factory=list[list[Any]])
    finish: str = ""
    usage: list[int] | None = None
    ending: str = ""
    flags: tuple[str, ...] = ()
    attempts: int = 0
    #: The upstream's last.
    status: int | None = None
    repairs: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def failed(self) -> bool:
        """Whether the client must see an error."""
        return self.ending != "completed" or "malformed_call" in self.flags

    @property
    def explains(self) -> list[str]:
        """The reasons for a difference from the direct response: repairs, further attempts, an announced ending."""
        if (self.status or 0) >= 400:
            return []  # an HTTP error passes as it came
        names = [f"`{name}`" for name in sorted(self.repairs) if name not in _NO_CURES]
        if self.attempts > 1:
            names.append(f"{self.attempts} attempts")
        if self.failed:
            names.append(f"ending `{self.ending}`" + "".join(f", flag `{flag}`" for flag in self.flags))
        return names


class Tapes:
    """The tapes of one proxy, each returned once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()

    async def new(self) -> list[Taped]:
        """Return those that were not returned before, in the order in which they ended; wait until all have."""
        before: set[str] | None = None
        with trio.fail_after(_TAPED_S):
            while True:
                new = {path.name: path for path in self._folder.rglob("*.tape") if path.name not in self._seen}
                try:
                    ordered = sorted(new.values(), key=lambda path: path.stat().st_mtime_ns)
                    found = [taped(path) for path in ordered]
                except FileNotFoundError:  # it has just moved to its day
                    found = [None]
                if None not in found and before == new.keys():
                    self._seen |= new.keys()
                    return [tape for tape in found if tape is not None]
                before = set(new)  # a tape that moves while the folders are read is seen in neither: look twice
                await trio.sleep(_POLL_S)


@dataclass(slots=True)
class Outcome:
    """One scenario of one client on one upstream."""

    verdict: Literal["same", "repaired", "differs"]
    direct: dict[str, Any]
    through: dict[str, Any]
    #: Of all its streams.
    explains: list[str]
    faults: list[str]


def taped(path: Path) -> Taped | None:
    """A tape folded, or None while it has no end."""
    reader = Reader()
    records = reader.feed(path.read_bytes())
    if not reader.ended:
        return None
    assert not reader.damage, f"{path}: {reader.damage}"
    return _folded(records)


def _folded(records: Sequence[Record]) -> Taped:
    summariser = Summariser().feed(*records)
    summary, usage = summariser.summary, summariser.summary.wire.usage
    end = records[-1].keys
    heads = [record.keys.get("status") for record in records if record.kind == "head"]
    found = Taped(
        ending=end.get("ending", ""),
        flags=tuple(end.get("flags", ())),
        attempts=sum(record.kind == "attempt" for record in records),
        status=heads[-1] if heads else None,
        repairs=summariser.repairs,
    )
    if summary.answers:
        found.text, found.finish = summary.answer().text, summary.answer().finish
        calls = (call for call in summary.wire.calls() if call.choice == 0 and call.name)
        found.calls = [[call.id, call.name, _arguments(call.arguments)] for call in calls]
    if usage is not None:
        found.usage = [usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)]
    return found


def _arguments(text: str) -> Any:
    """Parsed where it parses: some clients only give that. A string is what a client makes of half a call."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """Without what is chance. An id that was sent again and appended shows as such."""
    error = result["error"] and {
        key: _RANDOM.sub("…", value) if isinstance(value, str) else value for key, value in result["error"].items()
    }
    turns = [{**turn, "calls": [_plain_call(*call) for call in turn["calls"]]} for turn in result["turns"]]
    if error and error["class"] == "no end":
        turns = []  # how often it asked until it was stopped is chance, too
    return {"turns": turns, "ran": [_arguments(each) for each in result["ran"]], "error": error}


def _plain_call(one: str, name: str, arguments: str) -> list[Any]:
    return ["twice" if re.fullmatch(r"(.{4,}?)\1+", one) else "id" if one else "", name, _arguments(arguments)]


def judge(direct: dict[str, Any], through: dict[str, Any], tapes: Sequence[Taped]) -> Outcome:
    """`direct` and `through` as a driver gave them; the tapes of all that was asked through Wiretape, in order."""
    faults = list(_faults(through, tapes))
    explains = list(dict.fromkeys(each for tape in tapes for each in tape.explains))
    same = plain(direct) == plain(through)
    if not same and not explains:
        faults.append("it is not what came directly, and no tape names a reason")
    verdict: Literal["same", "repaired", "differs"] = "differs" if faults else "same" if same else "repaired"
    return Outcome(verdict, plain(direct), plain(through), explains, faults)


def _faults(through: dict[str, Any], tapes: Sequence[Taped]) -> Iterator[str]:
    if not tapes:
        yield "nothing was taped"
        return
    rest = iter(tapes)
    for number, turn in enumerate(through["turns"], 1):
        raised = through["error"] is not None and number == len(through["turns"])
        tried: list[str] = []
        for tape in rest:
            # Calls of half an answer prove nothing: clients make of them what they like.
            found = list(_differences(turn, tape, partial=raised or tape.failed))
            if not found:
                break
            tried += found
        else:
            yield f"turn {number} is on no tape: " + "; ".join(tried or ["there are fewer tapes"])
            return
    whole = [call[2] for tape in tapes if not tape.failed for call in tape.calls]
    if any(_arguments(each) not in whole for each in through["ran"]):
        yield f"a tool ran with {through['ran']}, which no whole call says"
    if tapes[-1].failed and through["error"] is None:
        yield f"the stream ended as {tapes[-1].ending} {tapes[-1].flags}, and the client got no error"
    if through["error"] is not None and not tapes[-1].failed:
        yield f"the client raised {through['error']}, although its stream is whole"


def _differences(turn: dict[str, Any], tape: Taped, *, partial: bool) -> Iterable[str]:
    if partial:
        if not tape.text.startswith(turn["text"] or ""):
            yield f"text {turn['text']!r} is no beginning of {tape.text!r}"
        return
    said = {
        "text": turn["text"],
        "calls": [[one, name, _arguments(arguments)] for one, name, arguments in turn["calls"]],
        "finish": turn["finish"],
        "usage": turn["usage"],
    }
    for name, value in said.items():
        due = getattr(tape, name)
        if value is None or value == due or (name == "usage" and value == [0, 0]):
            continue  # opencode says nothing as zeros
        yield f"{name} {value!r} instead of {due!r}"
