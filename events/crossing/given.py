"""Read a client's request: each value with its place, so that what cannot cross is refused by name."""

from collections.abc import Collection
from typing import Any, NamedTuple, TypeVar

from ..core.errors import RequestError
from ..core.json_text import as_text, is_list, is_object
from .losses import LEFT_OUT, REFUSED

__all__ = ["Given"]

_T = TypeVar("_T")


class Given(NamedTuple):
    """One value of a request, and where it is."""

    value: Any
    where: str = ""

    def refuse(self, what: str) -> RequestError:
        """Return the error that names this place."""
        return RequestError(self.where or "body", f"{self.where or 'body'}: {what}")

    def unknown(self, key: str = "type") -> RequestError:
        """Return the error about a kind of item, block, tool or role that no other dialect has."""
        inner = self.at(key)
        return inner.refuse(f"{inner.value!r} does not cross to an upstream of another dialect.")

    def get(self, key: str) -> Any:
        return self.value.get(key)

    def at(self, key: str) -> "Given":
        return Given(self.value.get(key), f"{self.where}.{key}" if self.where else key)

    def object(self) -> "Given":
        """Return this value, which must be an object."""
        if not is_object(self.value):
            raise self.refuse("must be an object.")
        return self

    def inner(self, key: str) -> "Given":
        """Return a member that must be an object."""
        return self.at(key).object()

    def maybe(self, key: str) -> "Given":
        """Return a member that may be missing, then as an empty object."""
        member = self.at(key)
        return member.object() if member.value else Given(dict[str, Any](), member.where)

    def objects(self, what: str = "an array") -> "list[Given]":
        """Return the elements of this array, which must be objects."""
        if not is_list(self.value):
            raise self.refuse(f"must be {what}.")
        return [Given(value, f"{self.where}[{at}]").object() for at, value in enumerate(self.value)]

    def blocks(self) -> "list[Given]":
        """Return the elements of this array, in whose place a string would have done."""
        return self.objects("a string or an array")

    def list(self, key: str) -> "list[Given]":
        """Return the objects in a member that may be missing."""
        member = self.at(key)
        return [] if member.value is None else member.objects()

    def text(self, key: str) -> str:
        """Return a member that must be text."""
        return self._typed(key, "a string", str)

    def word(self, key: str) -> str:
        """Return a member that is of no use unless it is text."""
        return as_text(self.value.get(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a member that is one text or an array of them."""
        member = self.at(key)
        texts = [member.value] if isinstance(member.value, str) else member.value or []
        if not is_list(texts) or not all(isinstance(text, str) for text in texts):
            raise member.refuse("must be an array of strings.")
        return tuple(texts)

    def maybe_text(self, key: str) -> str | None:
        return self._typed(key, "a string", str, type(None))

    def flag(self, key: str) -> bool | None:
        return self._typed(key, "true or false", bool, type(None))

    def whole(self, key: str) -> int | None:
        return self._typed(key, "a whole number", int, type(None))

    def number(self, key: str) -> float | None:
        return self._typed(key, "a number", int, float, type(None))

    def _typed(self, key: str, what: str, *types: type[_T]) -> _T:
        member = self.at(key)
        if type(member.value) not in types:
            raise member.refuse(f"must be {what}.")
        value: _T = member.value
        return value

    def check(self, read: Collection[str]) -> set[str]:
        """Return the losses of members that are known and left out; raise RequestError for an unknown one."""
        lost = set[str]()
        for member, value in self.object().value.items():
            if member in read or value is None:
                continue
            if member in REFUSED:
                why, *allowed = REFUSED[member]
                if value not in allowed:
                    raise self.at(member).refuse(why)
            elif member in LEFT_OUT:
                name, *harmless = LEFT_OUT[member]
                if value not in harmless:
                    lost.add(name)
            else:
                raise RequestError(member, f"Unknown parameter: {member!r}.", "unknown_parameter")
        return lost
