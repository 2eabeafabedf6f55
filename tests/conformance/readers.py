"""What the users of six clients hold after each stream, as it came and as we send it.

`python -m tests.conformance.readers` reads every captured chat stream and every shape of shapes.py, each also as the
answer to a request that brings a tool result. It fails if anything is right as it came and wrong as we send it.
The truth is the sum of what the upstream sent, taken without any of our own code.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.real.clients import version_table
from tests.real.processes import NODE, NODE_MODULES, PYTHONS, ROOT
from tests.support.chat import tape
from tests.support.corpus import ABSENT, drawn, load
from tests.support.markdown import table
from wiretape.events.core.json_text import as_list, as_object, joined_surrogates
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record

from .said import truth
from .shapes import SHAPES, answers, made

_PYTHON: Final = (str(PYTHONS["clients"]), "-m", "tests.conformance.python_readers")
_JS: Final = ("node", "readers.mjs")

#: The name in the document, and the command with its folder.
READERS: Final[Mapping[str, tuple[str, Path, tuple[str, ...]]]] = {
    "openai_node": ("openai for Node, `.stream()`", NODE, _JS),
    "openai_python": ("openai for Python, `.stream()`", ROOT, _PYTHON),
    "langchain_node": ("LangChain JS, `streamUsage`", NODE, _JS),
    "langchain_python": ("LangChain Python, `stream_usage`", ROOT, _PYTHON),
    "vercel_openai": ("Vercel `ai`, @ai-sdk/openai", NODE, _JS),
    "vercel_compatible": ("Vercel `ai`, @ai-sdk/openai-compatible", NODE, _JS),
}

_FIELDS: Final = ("text", "reasoning", "calls", "finish", "usage")
_CUT: Final = ("length", "content_filter")
_RESULTS: Final = [{"id": "call_0", "name": "read_file", "output": "text"}]


def missing() -> str:
    """Return what must be installed first, if anything."""
    if shutil.which("node") is None:
        return "there is no node on PATH"
    installed = NODE_MODULES.is_dir() and PYTHONS["clients"].exists()
    return "" if installed else "its packages are not installed: `make readers` does that"


# -- the truth --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Due:
    """What a reader must hold of the first choice."""

    text: str = ""
    refusal: str = ""
    reasoning: str = ""
    #: Id, name and arguments of each, as text.
    calls: list[list[str]] = field(default_factory=list[list[str]])
    finish: str = ""
    usage: list[Any] | None = None
    choices: set[int] = field(default_factory=set[int])
    #: It has the `function_call` of old.
    legacy: bool = False

    @property
    def whole_calls(self) -> list[Any]:
        """Return the calls that can run, with parsed arguments."""
        return [[one, name, json.loads(text or "{}")] for one, name, text in self.calls if _is_json(text or "{}")]

    @property
    def beyond(self) -> tuple[str, Sequence[str]]:
        """Return why a reader errs on this stream in every form, and in which members, if so."""
        if self.choices - {0}:
            return "several choices", ("error", *_FIELDS)
        whole = self.whole_calls
        if self.finish in _CUT and len(whole) < len(self.calls):
            return "arguments cut by the token limit", ("calls",)
        if any(not isinstance(given, dict) for *_, given in whole):
            return "arguments that are not an object", ("calls",)
        return "", ()


def added_up(upstream: bytes) -> Due:
    """Add up what the upstream sent: each piece once, the last usage that counts anything."""
    due = Due()
    calls: dict[int, list[str]] = {}
    for chunk in _chunks(upstream):
        counts = _counts(as_object(chunk.get("usage")))
        if any(counts) or (chunk.get("usage") and due.usage is None):  # all zeros say nothing (Q70)
            due.usage = counts
        for choice in map(as_object, as_list(chunk.get("choices"))):
            due.choices.add(choice.get("index", 0))
            if not choice.get("index"):
                _add(due, calls, as_object(choice.get("delta")))
                due.finish = choice.get("finish_reason") or due.finish
    due.calls = [call for _, call in sorted(calls.items())]
    if due.finish in ("", "stop"):  # a finish that denies the calls stops a client from running them
        due.finish = "tool_calls" if due.calls else "function_call" if due.legacy else "stop"
    return due


_THOUGHTS: Final = ("reasoning_content", "reasoning", "reasoning_text")


def _add(due: Due, calls: dict[int, list[str]], delta: dict[str, Any]) -> None:
    content = delta.get("content")
    parts = as_list(content) if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    for part in map(as_object, parts):
        if part.get("type") == "thinking":
            due.reasoning += "".join(str(as_object(piece).get("text", "")) for piece in as_list(part.get("thinking")))
        else:
            due.text += str(part.get("text", ""))
    thought = next((text for name in _THOUGHTS if isinstance(text := delta.get(name), str)), "")
    due.reasoning += thought
    due.refusal += delta.get("refusal") or ""
    due.legacy = due.legacy or bool(delta.get("function_call"))
    for entry in map(as_object, as_list(delta.get("tool_calls"))):
        call = calls.setdefault(entry.get("index", 0), ["", "", ""])
        function = as_object(entry.get("function"))
        call[0] = call[0] or entry.get("id") or ""
        call[1] = call[1] or function.get("name") or ""
        call[2] += function.get("arguments") or ""


def _chunks(upstream: bytes) -> Iterator[dict[str, Any]]:
    for block in upstream.decode(errors="replace").replace("\r\n", "\n").split("\n\n"):
        lines = [line.removeprefix("data:").removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
        try:
            yield as_object(json.loads("\n".join(lines)))
        except ValueError:
            continue


def _counts(usage: Mapping[str, Any]) -> list[Any]:
    return [usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# -- the cases --------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One stream: the upstream's bytes, ours, ours after a tool result, and what is so."""

    id: str
    upstream: bytes
    sent: bytes
    sent_after_result: bytes
    due: Due
    #: An error must end it.
    error_due: str


def case(name: str, upstream: bytes, due: Due, error_due: str = "") -> Case:
    """Emit one stream for a request that asks for usage and declares the tools that are called."""
    tools = [{"type": "function", "function": {"name": called}} for called in _names(due)]
    request = {"stream": True, "n": None, "stream_options": {"include_usage": True}, "tools": tools}
    records = tape(upstream, request=request)
    result = Record(2, 0, "results", {"results": _RESULTS})
    after = [*records[:2], result, *(one._replace(n=one.n + 1) for one in records[2:])]
    return Case(name, upstream, emit(records), emit(after), due, error_due)


def _names(due: Due) -> list[str]:
    return sorted({name for _, name, _ in due.calls if name})


def captured(one_in: int = 1) -> list[Case]:
    """Return every captured chat stream, or a sample."""
    streams = load() if one_in == 1 else [stream for _, stream in drawn(load(), one_in)]
    # The document lists the few with an error due, to be judged by a person.
    return [case(one.id, one.body, added_up(one.body), truth(one.body).error_due) for one in streams]


def shaped() -> list[Case]:
    """Return every answer in every shape."""
    return [
        case(
            name,
            upstream,
            Due(
                text=answer.text,
                reasoning=answer.reasoning,
                calls=[list(call) for call in answer.calls],
                finish=answer.finish,
                usage=_counts(answer.usage) if answer.usage else None,
                choices={0},
            ),
        )
        for name, answer, upstream in made()
    ]


# -- reading ----------------------------------------------------------------------------------------------------------

Reading = dict[str, Any]


def read(reader: str, asked: Sequence[tuple[bytes, Sequence[str]]]) -> list[Reading]:
    """Return what a reader makes of each of these bodies; the same body is read once."""
    _, folder, command = READERS[reader]
    places = {each: place for place, each in enumerate(dict.fromkeys((body, tuple(tools)) for body, tools in asked))}
    lines = [json.dumps({"body": base64.b64encode(body).decode(), "tools": tools}) for body, tools in places]
    done = subprocess.run(
        [*command, reader],
        cwd=folder,
        input="\n".join(lines).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(places), f"{reader} read {len(answers)} of {len(places)} streams"
    return [answers[places[body, tuple(tools)]] for body, tools in asked]


def wrong(reading: Reading, due: Due) -> list[str]:
    """Return the members of a reading that differ from the truth."""
    said: Any = _joined({name: reading[name] for name in _FIELDS})
    true: Any = _joined({name: getattr(due, name) for name in _FIELDS} | {"calls": due.whole_calls})
    found = ["error"] if reading["error"] else []
    found += [name for name in ("finish", "calls") if said[name] != true[name]]
    if said["text"] not in (true["text"], true["text"] + due.refusal):  # some clients show a refusal as text
        found.append("text")
    if said["reasoning"] not in (None, true["reasoning"]):  # or do not offer it
        found.append("reasoning")
    if (said["usage"] is None) != (true["usage"] is None) or any(
        count not in (None, known) for count, known in zip(said["usage"] or [], true["usage"] or [], strict=False)
    ):
        found.append("usage")
    return found


def _joined(value: Any) -> Any:
    """Join the halves of a character that came in two deltas: Python keeps them apart."""
    match value:
        case str():
            return joined_surrogates(value)
        case dict() | list():
            return json.loads(joined_surrogates(json.dumps(value, ensure_ascii=False)))
        case _:
            return value


# -- the verdict ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Verdict:
    """What one reader makes of some streams."""

    #: How many are right as they came or not, and as we send them or not.
    counts: Counter[tuple[bool, bool]] = field(default_factory=Counter[tuple[bool, bool]])
    #: Right as it came, wrong as we send it.
    lost: list[str] = field(default_factory=list[str])
    #: Wrong either way, although no reason lies in the reader.
    wrong: list[str] = field(default_factory=list[str])
    beyond: Counter[str] = field(default_factory=Counter[str])
    #: Streams with an error due: all, shown as it came, shown as we send it.
    errors: list[int] = field(default_factory=lambda: [0, 0, 0])

    def add(self, one: Case, came: Reading, sent: Reading) -> None:
        """Count one stream."""
        if one.error_due:
            shown = (True, bool(came["error"]), bool(sent["error"]))
            self.errors = [count + each for count, each in zip(self.errors, shown, strict=True)]
            if not sent["error"]:
                self.lost.append(f"{one.id}: {one.error_due} is not shown")
            return
        before, after = wrong(came, one.due), wrong(sent, one.due)
        self.counts[not before, not after] += 1
        beyond, excused = one.due.beyond
        lost = [name for name in after if name not in before and (not before or name not in excused)]
        if lost:
            self.lost.append(f"{one.id}: {', '.join(lost)}: {_shown(came, lost)} became {_shown(sent, lost)}")
        elif rest := [name for name in after if name not in excused]:
            self.wrong.append(f"{one.id}: {', '.join(rest)}: {_shown(sent, rest)}")
        elif after:
            self.beyond[beyond] += 1


def _shown(reading: Reading, names: Iterable[str]) -> str:
    return f"{[reading[name] for name in names]!r:.150}"


def judge(cases: Sequence[Case]) -> dict[str, tuple[Verdict, Verdict]]:
    """Return the verdicts on each reader over all cases: plain, and after a tool result."""
    tools = [_names(one.due) for one in cases]
    columns = ("upstream", "sent", "sent_after_result")
    asked = [(getattr(one, column), names) for column in columns for one, names in zip(cases, tools, strict=True)]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        readings = dict(zip(READERS, threads.map(read, READERS, repeat(asked)), strict=True))
    verdicts = {reader: (Verdict(), Verdict()) for reader in READERS}
    for reader, said in readings.items():
        size = len(cases)
        for place, one in enumerate(cases):
            for number, verdict in enumerate(verdicts[reader], 1):
                verdict.add(one, said[place], said[number * size + place])
    return verdicts


#: (Right as it came and wrong as we send it, wrong either way) before the change that these readers led to, for the
#: captured streams and for the shapes, each plain and after a tool result: measured with this module on dd86527.
BEFORE: Final[Mapping[str, Mapping[str, Sequence[tuple[int, int]]]]] = {
    "captured": {
        "openai_node": ((0, 2), (0, 2)),
        "openai_python": ((0, 2), (0, 2)),
        "langchain_node": ((0, 2), (1, 2)),
        "langchain_python": ((0, 47), (0, 47)),
        "vercel_openai": ((0, 2), (0, 2)),
        "vercel_compatible": ((0, 2), (0, 2)),
    },
    "shapes": {
        "openai_node": ((26, 0), (26, 0)),
        "openai_python": ((37, 50), (37, 50)),
        "langchain_node": ((66, 28), (80, 33)),
        "langchain_python": ((26, 52), (26, 52)),
        "vercel_openai": ((26, 25), (26, 25)),
        "vercel_compatible": ((24, 14), (24, 14)),
    },
}

_HEAD: Final = (
    "reader",
    "right either way",
    "right only as we send it",
    "beyond the reader",
    "wrong either way (before)",
    "**right as it came, wrong as we send it** (before)",
)


def summary(part: str, verdicts: Mapping[str, tuple[Verdict, Verdict]]) -> str:
    """Return the table of one part, in the form of the document."""
    rows: list[list[object]] = []
    for reader, pair in verdicts.items():
        for number, (after, verdict) in enumerate(zip(("", ", after a tool result"), pair, strict=True)):
            before = [f" ({count})" for count in BEFORE[part][reader][number]] if part in BEFORE else ["", ""]
            rows.append(
                [
                    READERS[reader][0] + after,
                    verdict.counts[True, True],
                    verdict.counts[False, True],
                    sum(verdict.beyond.values()),
                    f"{len(verdict.wrong)}{before[1]}",
                    f"**{len(verdict.lost)}**{before[0]}",
                ]
            )
    return table(_HEAD, rows)


def errors(verdicts: Mapping[str, tuple[Verdict, Verdict]]) -> str:
    """Return the table of streams that must end with an error."""
    rows = [[READERS[reader][0], *plain.errors] for reader, (plain, _) in verdicts.items()]
    return table(["reader", "an error is due", "it shows one as it came", "as we send it"], rows)


_TEXT: Final = """\
What the user of a client holds at the end: text, reasoning, calls with parsed arguments, finish and usage of the first
choice, or the error that is raised or shown. Every client asks for usage. The truth is the sum of what the upstream
sent, added up by `tests/conformance/readers.py` without Wiretape's own code. Each stream is read as it came, as we send
it, and as we send it to a request that brings a tool result, which puts a lifecycle frame first. `make readers` fails
if a figure in one of the last two columns is not 0.

- **beyond the reader**: {beyond}. LangChain and Vercel's `ai` add several choices into one, and LangChain repairs
  arguments that were cut.
- **before**: the figure on commit dd86527, before the faults that these readers found were fixed.

{versions}
### Captured streams

{captured} streams.

{captured_table}
### Streams that must end with an error

{errors}
### Shapes that the captures lack

{shapes} streams made by hand (synthetic): {answers} answers in {kinds} shapes of upstreams, such as a whole call
with its finish in the first chunk, a finish for each call, usage on every chunk, `logprobs` that is a number. Their
truth is the answer from which they were made.

{shapes_table}"""


def section() -> str:
    """Return the part of docs/internals/conformance.md that these readers fill."""
    parts = {"captured": captured(), "shapes": shaped()}
    verdicts = {part: judge(cases) for part, cases in parts.items()}
    beyond = Counter[str]()
    for plain, _ in verdicts["captured"].values():
        beyond |= plain.beyond
    packages = ("openai", "openai (npm)", "@langchain/openai (npm)", "langchain-openai", *_VERCEL)
    return _TEXT.format(
        beyond=", ".join(f"{name} (up to {count} streams)" for name, count in beyond.most_common()),
        versions=version_table(packages),
        captured=len(parts["captured"]),
        captured_table=summary("captured", verdicts["captured"]),
        errors=errors(verdicts["captured"]),
        shapes=len(parts["shapes"]),
        answers=len(list(answers())),
        kinds=len(SHAPES),
        shapes_table=summary("shapes", verdicts["shapes"]),
    )


_VERCEL: Final = ("ai (npm)", "@ai-sdk/openai (npm)", "@ai-sdk/openai-compatible (npm)")


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("all", "ci"), default="all", help="ci: one captured stream of ten")
    parser.add_argument("--shown", type=int, default=10, help="how many faults of each kind are printed")
    asked = parser.parse_args()
    if lack := missing():
        sys.exit(f"the readers cannot run: {lack}")
    if not load():
        print(ABSENT)
    failed = False
    whole = asked.part == "all"
    parts = {"captured" if whole else "a sample of the captured": captured(1 if whole else 10), "shapes": shaped()}
    for name, cases in parts.items():
        if not cases:  # the corpus is absent
            continue
        verdicts = judge(cases)
        print(f"{name}: {len(cases)} streams\n\n{summary(name, verdicts)}\n{errors(verdicts)}")
        for reader, pair in verdicts.items():
            for kind in ("lost", "wrong"):
                found = list(dict.fromkeys(each for verdict in pair for each in getattr(verdict, kind)))
                failed |= bool(found)
                print("".join(f"{reader} {kind}: {each}\n" for each in found[: asked.shown]), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
