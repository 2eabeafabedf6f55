"""Answers that are no conversation, as pictures, files, runs and Gemini's: where their ids and times of creation stand

Only what says itself what it is: a model's name is an `id` too, and when it was made is no news.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from wiretape.events.core.json_text import as_list, is_list, is_object

from ..sealed.scalars import Path

__all__ = ["ID_NAMES", "TIME_NAMES", "holders", "is_seconds", "kind_of"]

#: Besides what answers in any dialect call so.
ID_NAMES: Final = frozenset({"responseId"})
#: In these alone: a run says when it began and when it failed, a batch a dozen of them.
TIME_NAMES: Final = re.compile(r"created|createTime|[a-z]+(?:_[a-z]+)*_at")
#: As providers make them up, with a run in which no words are, or a UUID; and as they are here already. A model, a tool
#: and what is set up once are called by a name, also by one that begins so: `batch-process`, `step-by-step`.
_MADE: Final = re.compile(
    r"((?:embd|file|batch|vs|vsfb|run|thread|asst|step|upload|part|ftjob)[-_])"
    r"(?:[1-9]\d{0,2}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?=[\w-]*?(?:(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{16}|(?=[a-z]*[A-Z])(?=[A-Z]*[a-z])[A-Za-z]{20}))[\w-]+)"
)
#: From 2001 to 2286: fewer digits are a number, more are no seconds.
_SECONDS: Final = re.compile(r"[1-9]\d{9}(?:\.\d+)?")
#: A model was made once, and its id is its name.
_LASTING: Final = frozenset({"model"})


def holders(value: Any) -> frozenset[Path]:
    """The objects of such an answer: itself, what it lists, and what it brings one by one."""
    return frozenset(path for path, each in _objects(value) if _says_what_it_is(each))


def _objects(value: Any) -> Iterator[tuple[Path, Any]]:
    yield (), value
    if is_list(value):
        yield from (((at,), each) for at, each in enumerate(value))
    elif is_object(value):
        yield from ((("data", at), each) for at, each in enumerate(as_list(value.get("data"))))


def _says_what_it_is(value: Any) -> bool:
    if not is_object(value):
        return False
    kind = value.get("object")
    if isinstance(kind, str):
        return kind not in _LASTING
    # Pictures, and Gemini's.
    return ("created" in value and is_list(value.get("data"))) or ("candidates" in value and "responseId" in value)


def kind_of(id_: str) -> str:
    """What an id of an object begins with, where a provider made it up; else nothing."""
    match = _MADE.fullmatch(id_)
    return match[1] if match else ""


def is_seconds(number: str) -> bool:
    """Whether a number is a time."""
    return _SECONDS.fullmatch(number) is not None
