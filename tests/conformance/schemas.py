"""The published types of Responses and Messages as judges: openresponses-types, and the openai and anthropic SDKs."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, get_args, get_origin

import openresponses_types
from anthropic.types import RawMessageStreamEvent
from anthropic.types.beta import BetaRawMessageStreamEvent
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter, ValidationError

from .order import Frames

__all__ = ["SCHEMAS", "Unfit", "unfit"]

#: The members of a payload that do not fit, or `unknown type`.
Unfit = frozenset[str]
_FITS: Final[Unfit] = frozenset()
_UNKNOWN: Final[Unfit] = frozenset({"unknown type"})
#: openai's types close the list of error codes. Ours, and those of an upstream, are no part of that list:
#: clients read them to decide whether they ask again.
_OPEN_LIST: Final = "response.error.code"

#: Named otherwise by the two publishers.
_RENAMED: Final = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}
#: In no published type, and skipped by every reader.
_ASIDE: Final = {"keepalive", "ping"}


def _members(union: Any) -> Iterator[Any]:
    """Yield the classes of a nested union."""
    if get_origin(union) is Annotated:
        yield from _members(get_args(union)[0])
    elif isinstance(union, type) and issubclass(union, BaseModel):
        yield union
    else:
        for each in get_args(union):
            yield from _members(each)


def _by_type(classes: Iterable[Any]) -> dict[str, TypeAdapter[Any]]:
    """Return the validator of each type; a type may have several classes."""
    found: dict[str, list[Any]] = {}
    for each in classes:
        annotation = each.model_fields["type"].annotation
        for name in get_args(annotation) or tuple(annotation):  # a literal, or an enumeration of one
            found.setdefault(getattr(name, "value", name), []).append(each)
    return {name: TypeAdapter(functools.reduce(lambda one, two: one | two, these)) for name, these in found.items()}


@functools.cache
def _open_responses() -> Mapping[str, TypeAdapter[Any]]:
    names = (name for name in vars(openresponses_types) if name.endswith("StreamingEvent"))
    return _by_type(getattr(openresponses_types, name) for name in names)


@functools.cache
def _openai() -> Mapping[str, TypeAdapter[Any]]:
    return _by_type(_members(ResponseStreamEvent))


@functools.cache
def _anthropic() -> Mapping[str, TypeAdapter[Any]]:
    return _by_type(_members(RawMessageStreamEvent))


@functools.cache
def _anthropic_beta() -> Mapping[str, TypeAdapter[Any]]:
    return _by_type(_members(BetaRawMessageStreamEvent))


def _open_responses_unfit(value: dict[str, Any]) -> Unfit:
    kind = str(value.get("type"))
    name = _RENAMED.get(kind, kind)
    adapter = _open_responses().get(name)
    return _UNKNOWN if adapter is None else _reasons([adapter], {**value, "type": name})


def _openai_unfit(value: dict[str, Any]) -> Unfit:
    adapter = _openai().get(str(value.get("type")))
    return _UNKNOWN if adapter is None else _reasons([adapter], value)


def _anthropic_unfit(value: dict[str, Any]) -> Unfit:
    kind = str(value.get("type"))
    if kind == "error":  # raised before any type is consulted
        return _FITS if isinstance(value.get("error"), dict) else frozenset({"error"})
    adapters = [each[kind] for each in (_anthropic(), _anthropic_beta()) if kind in each]
    return _reasons(adapters, value) if adapters else _UNKNOWN


def _reasons(adapters: Sequence[TypeAdapter[Any]], value: dict[str, Any]) -> Unfit:
    """Return nothing if one of these accepts the payload, else what the first one says."""
    reasons: list[Unfit] = []
    for adapter in adapters:
        try:
            adapter.validate_python(value)
        except ValidationError as failure:
            errors = failure.errors(include_url=False, include_input=False)
            places = [[part for part in map(str, error["loc"]) if not part[:1].isupper()] for error in errors]
            reasons.append(frozenset(".".join(place[: _depth(place)]) for place in places if place))
        else:
            return _FITS
    return reasons[0] - {_OPEN_LIST}


def _depth(place: Sequence[str]) -> int:
    """Return how much of a place is kept: deeper in, each member of a union has its own complaint."""
    if place[0] in ("item", "part", "content_block"):
        return 1
    return 3 if place[:2] == ["response", "error"] else 2


#: By dialect and name of the publisher.
SCHEMAS: Final[Mapping[str, Mapping[str, Callable[[dict[str, Any]], Unfit]]]] = {
    "responses": {"openresponses-types": _open_responses_unfit, "openai types": _openai_unfit},
    "messages": {"anthropic types": _anthropic_unfit},
}


def unfit(dialect: str, frames: Frames) -> dict[str, Unfit]:
    """Return what each publisher's types refuse in the frames of a stream."""
    judged = [value for _, value in frames if value.get("type") not in _ASIDE]
    return {
        name: frozenset(reason for value in judged for reason in judge(value))
        for name, judge in SCHEMAS.get(dialect, {}).items()
    }
