"""One entry of `tool_calls`, read without trusting it: which call it points at, and what it says of it"""

from typing import Any, NamedTuple

from ..core.json_text import dumps, is_object
from ..core.splice import Path
from .known import KnownCall

__all__ = ["Entry", "said_in"]


def said_in(entry: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """What of an entry of `tool_calls` says its name and arguments, if it is there, and whether it is a custom tool's.

    Gateways may write both members, one of them empty; then the type tells, or which of them says something.
    """
    function, custom, is_custom = entry.get("function"), entry.get("custom"), entry.get("type") == "custom"
    says = is_object(function) and any(function.get(key) for key in ("name", "arguments"))
    if is_object(custom) and (is_custom or not says):
        return custom, True
    return (function, False) if is_object(function) else (None, is_custom)


class Entry(NamedTuple):
    """One entry of `tool_calls`, read without trusting it: what is not usable counts as absent."""

    path: Path
    given: dict[str, Any]
    #: Its `index`; the name would hide a method of tuples.
    place: int | None
    id: str
    name: str
    #: The arguments as the text that the client will see.
    text: str
    #: What of it says the name and the arguments, or, of a custom tool, the input.
    function: dict[str, Any] | None
    custom: bool

    @staticmethod
    def of(path: Path, given: dict[str, Any]) -> "Entry":
        """From the JSON object that stands at `path`."""
        index, call_id = given.get("index"), given.get("id")
        function, custom = said_in(given)
        fields: dict[str, Any] = {} if function is None else function
        name, arguments = fields.get("name"), fields.get("input" if custom else "arguments")
        text = "" if arguments is None else dumps(arguments).decode()
        return Entry(
            path,
            given,
            index if type(index) is int else None,
            call_id if isinstance(call_id, str) and call_id != "null" else "",  # Q4: the text "null"
            name if isinstance(name, str) else "",
            arguments if isinstance(arguments, str) else text,
            function,
            custom,
        )

    @property
    def member(self) -> str:
        """What it says its name and its arguments in ..."""
        return "custom" if self.custom else "function"

    @property
    def other(self) -> str:
        """... what it does not, whatever stands there ..."""
        return "function" if self.custom else "custom"

    @property
    def arguments(self) -> str:
        """... and how it calls these."""
        return "input" if self.custom else "arguments"

    def may_be_of(self, call: KnownCall) -> bool:
        """Not where one is of a function and the other of a custom tool; metadata alone may be of either."""
        return self.function is None or call.custom in (None, self.custom)

    @property
    def opens_value(self) -> bool:
        """Whether its text could be the beginning of whole arguments."""
        return self.text.lstrip()[:1] in ("{", "[")
