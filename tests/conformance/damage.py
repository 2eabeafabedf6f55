"""What can go wrong for a client, in rows: how many streams it hits as they came, and as we send them."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from .said import Answer, Reading, Truth

HELPER_RAISES: Final = "the helper that accumulates raises"

Check = Callable[[Reading, Truth], bool]


def pairs(reading: Reading, truth: Truth) -> list[tuple[Answer, Answer, bool]]:
    """Of every choice what was read, what is so, and whether its finish is withheld.

    Of a stream that was not read to its end nothing is compared: that is a row of its own.
    """
    if reading.stream_error or reading.helper_error:
        return []
    due = truth.answers
    return [(reading.answers.get(index, Answer()), due[index], index in truth.without_finish) for index in due]


def _any(test: Callable[[Answer, Answer], bool]) -> Check:
    return lambda reading, truth: any(test(said, due) for said, due, _ in pairs(reading, truth))


def _other(name: str) -> Check:
    return _any(lambda said, due: getattr(said, name) != getattr(due, name))


def _claims_malformed(reading: Reading, truth: Truth) -> bool:
    return any(withheld and said.finish for said, _, withheld in pairs(reading, truth))


ROWS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "iterating raises what is not the SDK's own error": lambda said, _: said.stream_error not in ("", "APIError"),
        "iterating raises, although no error is due": lambda said, due: bool(said.stream_error) and not due.error_due,
        "an error is due, but nothing raises": lambda said, due: bool(due.error_due) and not said.stream_error,
        HELPER_RAISES: lambda said, _: bool(said.helper_error and not said.stream_error),
        "`chunk.choices[0].delta.content` raises": lambda said, _: bool(said.loop_error),
        "role is doubled": _any(lambda said, _: bool(said.role) and said.role != "assistant"),
        "role is missing": _any(lambda said, _: not said.role),
        "id or name of a call is doubled": _any(lambda said, _: bool(said.repeated)),
        "`type` of a call is not `function`": _any(lambda said, _: bool(said.types - {"function"})),
        "finish is `stop` although calls were made": _any(lambda said, _: bool(said.calls) and said.finish == "stop"),
        "finish is missing although the answer is whole": _any(lambda said, due: bool(due.finish) and not said.finish),
        "finish hands over a call whose arguments are not JSON": _claims_malformed,
        "text differs": _other("text"),
        "thinking is not in `reasoning_content`": _other("reasoning"),
        "refusal differs": _other("refusal"),
        "calls differ (id, name, arguments)": _other("calls"),
        "`function_call` differs": _other("legacy"),
        "usage differs": lambda said, due: said.usage != due.usage,
    }
)


def hit(row: str, readings: Sequence[Reading], truths: Sequence[Truth]) -> list[int]:
    """The places of the streams that this row hits."""
    return [place for place, each in enumerate(zip(readings, truths, strict=True)) if ROWS[row](*each)]
