"""Find ids and creation times in responses that are not conversations: images, files, runs, and Gemini's."""

import re
from typing import Any, Final

from wiretape.events.core.json_text import as_list, is_list, is_object

from ..sealed.texts import Path

__all__ = ["ID_NAMES", "TIME_NAMES", "holders", "is_seconds", "kind_of"]

#: Id members besides those of the dialects.
ID_NAMES: Final = frozenset({"responseId"})
TIME_NAMES: Final = re.compile(r"created|createTime|[a-z]+(?:_[a-z]+)*_at")
#: Ids that providers make up have a run of characters that is no word, or a UUID; renamed ones have a number. A person
#: may give a name with the same prefix: `batch-process`, `step-by-step`.
_MADE_UP: Final = re.compile(
    r"((?:embd|file|batch|vs|vsfb|run|thread|asst|step|upload|part|ftjob)[-_])"
    r"(?:[1-9]\d{0,2}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?=[\w-]*?(?:(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{16}|(?=[a-z]*[A-Z])(?=[A-Z]*[a-z])[A-Za-z]{20}))[\w-]+)"
)
#: Seconds from 2001 to 2286.
_SECONDS: Final = re.compile(r"[1-9]\d{9}(?:\.\d+)?")


def holders(value: Any) -> frozenset[Path]:
    """Return the paths of such objects: the response itself, and those that it lists."""
    objects: dict[Path, Any] = {(): value}
    if is_list(value):
        objects |= {(at,): each for at, each in enumerate(value)}
    elif is_object(value):
        objects |= {("data", at): each for at, each in enumerate(as_list(value.get("data")))}
    return frozenset(path for path, each in objects.items() if is_object(each) and _is_known(each))


def _is_known(value: dict[str, Any]) -> bool:
    kind = value.get("object")
    if isinstance(kind, str):
        return kind != "model"  # the id of a model is its name
    is_images = "created" in value and is_list(value.get("data"))
    return is_images or ("candidates" in value and "responseId" in value)  # the latter is Gemini's


def kind_of(id_: str) -> str:
    """Return the prefix of an id that a provider made up; empty for a name."""
    match = _MADE_UP.fullmatch(id_)
    return match[1] if match else ""


def is_seconds(number: str) -> bool:
    """Return whether a number is a time."""
    return _SECONDS.fullmatch(number) is not None
