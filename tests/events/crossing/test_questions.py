"""The same questions in three dialects: each crosses, is valid, and differs from the recorded request for a reason."""

import functools
import gzip
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from tests.events.crossing.asking import PAIRS, crossed
from tests.house.tree import ROOT
from wiretape.events.core.json_text import as_object, is_list, is_object, parse

QUESTIONS: Final = ROOT.parent / "shared/questions/lingua.jsonl.gz"

pytestmark = pytest.mark.skipif(not QUESTIONS.is_file(), reason=f"NOT RUN: no questions at {QUESTIONS}")


class Case(NamedTuple):
    """One request, and the one that was recorded for another dialect."""

    name: str
    member: str
    theirs: str
    ours: str
    request: dict[str, Any]
    recorded: dict[str, Any] | None


@functools.cache
def cases() -> list[tuple[Case, Any]]:
    """Return every request in every direction, and what it becomes."""
    return [(case, crossed(case.request, case.theirs, case.ours).body) for case in _cases()]


def _cases() -> Iterator[Case]:
    rows = [as_object(parse(line)) for line in gzip.decompress(QUESTIONS.read_bytes()).splitlines()]
    by_case = {(row["case"], row["dialect"]): row for row in rows}
    for (name, theirs), row in by_case.items():
        for member in ("request", "followup_request"):
            for asked, ours in PAIRS:
                if asked == theirs and member in row:
                    recorded = by_case.get((name, ours), {}).get(member)
                    yield Case(name, member, theirs, ours, row[member], recorded)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value that holds no other one, with its path."""
    if is_object(value) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif is_list(value) and value:
        for at, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{at}]")
    else:
        yield path, value


#: Why a crossed request differs from the one that was recorded: a pattern of its direction and the place.
EXPLAINED: Final = {
    "the dialects were asked with different models": r".* model",
    "Messages demands a limit that the others do not": (
        r"(chat|responses)->messages max_tokens|messages->chat max_completion_tokens"
        r"|messages->responses max_output_tokens"
    ),
    "recorded with the type left out, which has a default": r".*->responses input\[\d\]\.type",
    "recorded with stored responses; crossed ones are kept on tape": r".* store",
    "a response that is not stored returns its thinking": r".*->responses include\[0\]",
    "the effort was set in one dialect only": (
        r".*->responses reasoning\.(effort|summary)|responses->chat reasoning_effort"
        r"|responses->messages (output_config\.effort|thinking\.(type|display))"
    ),
    "metadata of other keys in each dialect": r".* (metadata\.\w+|user)",
    "a tier of service has other words in Messages": r"(messages->.*|.*->messages) service_tier",
    "a schema has a name and a description in OpenAI's dialects only": (
        r"messages->(chat response_format\.json_schema|responses text\.format)\.(name|description)"
    ),
    "Responses says what chat leaves to its default": r"responses->chat tools\[0\]\.function\.strict",
    "a list of one text is a string": r".*->chat messages\[0\]\.content(\[0\]\.(type|text))?",
    "cache hints for chat only where the route says so": (
        r"messages->chat messages\[0\]\.content\[0\]\.(cache_control|prompt_cache_breakpoint)\.\w+"
        r"|chat->messages system\[0\]\.cache_control\.ttl"
    ),
    "chat cannot return Responses' proofs of thinking": (
        r"responses->chat messages\[1\]\.reasoning(_signature\[\d\])?|chat->responses input\[\d\]\.\w+"
    ),
    "tool search has the upstream's own tool in Messages, and its own items in Responses": (
        r"responses->messages (tools\[\d\]|messages\[[12]\])\..+"
        r"|messages->responses (tools\[\d\]|input\[[123]\])\..+"
    ),
    "each dialect was answered by another model, in other words and items": (
        r"followup_request .* (messages|input)\[[1-9]\d*\].*"
    ),
    "the question is another one": r".* (input|messages)\[0\]\.content",
}


def differences(case: Case, body: Any) -> list[str]:
    """Return where a crossed request differs from the recorded one."""
    made = dict(leaves(body))
    recorded = dict(leaves(case.recorded))
    places = sorted(place for place in made.keys() | recorded.keys() if made.get(place) != recorded.get(place))
    return [f"{case.member} {case.theirs}->{case.ours} {place}" for place in places]


def test_every_question_crosses_in_every_direction_and_is_valid() -> None:
    assert len(cases()) >= 300


def test_every_text_of_a_question_arrives() -> None:
    """Nothing that people or models said is lost."""
    for case, body in cases():
        arrived = [value for _, value in leaves(body)]
        together = "\n".join(value for value in arrived if isinstance(value, str))
        said = [(place, text) for place, text in leaves(case.request) if place.endswith((".text", ".content", "input"))]
        for place, text in said:
            if isinstance(text, str) and "summary" not in place and "content[" not in place.partition("].content[")[2]:
                assert text in together, (case.name, case.theirs, case.ours, place)


def test_every_difference_from_the_recorded_request_is_explained() -> None:
    compared, found = 0, set[str]()
    for case, body in cases():
        if case.recorded is not None:
            compared += 1
            found.update(differences(case, body))
    reasons = [
        re.compile(pattern if pattern.startswith("f") else rf"(followup_)?request ({pattern})")
        for pattern in EXPLAINED.values()
    ]
    assert [place for place in sorted(found) if not any(reason.fullmatch(place) for reason in reasons)] == []
    assert [reason.pattern for reason in reasons if not any(map(reason.fullmatch, found))] == []
    assert compared >= 150
