"""The YAML that cassettes are written in, strictly: block and flow collections, every scalar, no objects of Python

What stands outside of it (directives but the version, several documents, complex keys, tags of programs) is refused
with its line.
"""

import base64
import binascii
import re
from typing import Any, Final

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import is_list

from .yaml_scalars import block_scalar, double_quoted, folded, resolved, single_quoted

__all__ = ["read_yaml"]

_NESTING_MAX: Final = 64
#: Nodes of one file, those behind aliases counted each time: an alias must not make much of little.
_NODES_MAX: Final = 2_000_000

_DOUBLE: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SINGLE: Final = re.compile(r"'(?:[^']++|'')*+'")
#: What a plain word cannot begin with, in a block and in a flow collection.
_NOT_FIRST: Final = r"(?![\-?:](?:[ \t\n]|$))(?![\[\]{},#&*!|>'\"%@`])"
_NOT_FIRST_IN_FLOW: Final = r"(?![?\-:](?:[ \t\n,\[\]{}]|$))(?![\[\]{},#&*!|>'\"%@`])"
_PLAIN_KEY: Final = re.compile(_NOT_FIRST + r"[^\n]{0,1024}?(?=[ \t]*:(?:[ \t\n]|$))")
_COLON: Final = re.compile(r"[ \t]*:(?=[ \t\n]|$)")
_DASH: Final = re.compile(r"-(?=[ \t\n]|$)")
_COMPLEX: Final = re.compile(r"[?\-:](?=[ \t\n]|$)")
_PROPERTY: Final = re.compile(r"([!&])([^\s,\[\]{}]*)[ \t]*")
_ALIAS: Final = re.compile(r"\*([^\s,\[\]{}]+)")
_BLOCK: Final = re.compile(r"([|>])([1-9]?)([-+]?)([1-9]?)[ \t]*(?:#[^\n]*)?(?:\n|$)")
_FLOW_PLAIN: Final = re.compile(_NOT_FIRST_IN_FLOW + r"(?:[^,\[\]{}\n:#]|:(?![ \t\n,\[\]{}]|$)|(?<![ \t])#)+")
_PYTHON_TEXT: Final = frozenset({"!str", "!python/str", "!python/unicode"})
_LISTS: Final = frozenset({"!seq", "!python/tuple"})
_NUMBERS: Final = frozenset({"!int", "!float", "!bool", "!null"})
_PLAIN_TAGS: Final = frozenset({"", "!map", "!timestamp", *_NUMBERS})


def read_yaml(data: bytes) -> Any:
    """The value of the one document; raises TapeError."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise TapeError(f"byte {error.start}: not UTF-8") from None
    return _Reader(re.sub(r"(?m)^\.\.\.\s*\Z", "", text)).document()


class _Reader:
    """A place in the text; what is read moves it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nodes = 0
        self._depth = 0
        self._anchors: dict[str, tuple[Any, int]] = {}

    def document(self) -> Any:
        # As Ruby's VCR and others begin a cassette; the versions differ in nothing that one is written in.
        if (version := re.match(r"%YAML 1\.[12][ \t]*\n(?=---)", self._text)) is not None:
            self._at = version.end()
        if (begin := re.compile(r"---[ \t]*(?:#[^\n]*)?\n").match(self._text, self._at)) is not None:
            self._at = begin.end()
        if self._skip() < 0:
            return None
        value = self._value(-1, in_mapping=False)
        if self._skip() >= 0:
            raise self._error("something behind the document, or not indented as it should be")
        return value

    def _error(self, why: str) -> TapeError:
        line = self._text.count("\n", 0, self._at) + 1
        return TapeError(f"line {line}: {why}")

    def _skip(self) -> int:
        """Over white space and comments, to the next thing; its column, or -1 at the end."""
        text, size = self._text, len(self._text)
        while self._at < size:
            character = text[self._at]
            if character in " \n":
                self._at += 1
            elif character == "#" and (self._at == 0 or text[self._at - 1] in " \n\t"):
                end = text.find("\n", self._at)
                self._at = size if end < 0 else end
            elif character == "\t":
                raise self._error("a tab, which indents nothing")
            else:
                return self._at - text.rfind("\n", 0, self._at) - 1
        return -1

    def _blank_line(self) -> bool:
        """Whether nothing more stands on this line."""
        match = re.compile(r"[ \t]*(?:(?<=[ \t])#[^\n]*)?(?=\n|\Z)").match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match is not None

    # -- blocks -------------------------------------------------------------------------------------------------------

    def _node(self, parent: int) -> Any:
        """What begins here, inside something in column `parent`."""
        self._nodes += 1
        self._depth += 1
        if self._nodes > _NODES_MAX:
            raise self._error(f"more than {_NODES_MAX} values")
        if self._depth > _NESTING_MAX:
            raise self._error("nested too deeply")
        column = self._at - self._text.rfind("\n", 0, self._at) - 1
        if _DASH.match(self._text, self._at):
            value: Any = self._sequence(column)
        elif self._key_end() is not None:
            value = self._mapping(column)
        else:
            value = self._scalar(parent, "")
        self._depth -= 1
        return value

    def _sequence(self, column: int) -> list[Any]:
        items: list[Any] = []
        while True:
            self._at += 1
            items.append(self._value(column, in_mapping=False))
            found = self._skip()
            if found != column or not _DASH.match(self._text, self._at):
                self._must_be_outside(found, column)
                return items

    def _mapping(self, column: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while True:
            end = self._key_end()
            if end is None:
                raise self._error("a name and a colon are due")
            key = self._key(end)
            members[key] = self._value(column, in_mapping=True)
            found = self._skip()
            if found != column or _DASH.match(self._text, self._at):
                self._must_be_outside(found, column)
                return members

    def _must_be_outside(self, found: int, column: int) -> None:
        if found > column:
            raise self._error("indented as nothing before it")

    def _key_end(self) -> int | None:
        """Where the name that begins here ends, if one does."""
        quoted = {'"': _DOUBLE, "'": _SINGLE}.get(self._text[self._at : self._at + 1], _PLAIN_KEY)
        found = quoted.match(self._text, self._at)
        if found is None or "\n" in found[0] or not _COLON.match(self._text, found.end()):
            return None
        return found.end()

    def _key(self, end: int) -> str:
        said = self._text[self._at : end]
        colon = _COLON.match(self._text, end)
        assert colon is not None, "a key was found here"
        self._at = colon.end()
        if said[:1] == '"':
            return self._unquoted(said)
        return single_quoted(said) if said[:1] == "'" else said.strip()

    def _value(self, column: int, *, in_mapping: bool) -> Any:
        """Behind a dash or a colon."""
        tag, anchor = self._properties()
        before = self._nodes
        if self._blank_line():
            found = self._skip()
            dash = found == column and in_mapping and _DASH.match(self._text, self._at) is not None
            value = self._node(column) if found > column or dash else None
            value = self._tagged(value, tag)
        elif in_mapping or tag or anchor or self._text[self._at] in "\"'[{|>*":
            self._nodes += 1
            value = self._node(column) if not in_mapping and self._key_end() else self._scalar(column, tag)
        else:
            value = self._node(column)
        if anchor:
            self._anchors[anchor] = value, self._nodes - before
        return value

    def _properties(self) -> tuple[str, str]:
        tag = anchor = ""
        while self._text[self._at : self._at + 1] in (" ", "\t") and self._text[self._at : self._at + 1]:
            self._at += 1
        while (found := _PROPERTY.match(self._text, self._at)) is not None:
            if found[1] == "!":
                tag = found[2]
            else:
                anchor = found[2]
            self._at = found.end()
        return tag, anchor

    # -- scalars and flow ---------------------------------------------------------------------------------------------

    def _scalar(self, parent: int, tag: str) -> Any:
        """What is no block collection, to the end of its line."""
        first = self._text[self._at : self._at + 1]
        if first in ("|", ">"):
            return self._block(parent, tag)
        if first in ("", "%", "@", "`", ",", "]", "}") or _COMPLEX.match(self._text, self._at):
            raise self._error("no value begins so")
        if first in ('"', "'"):
            value: Any = self._tagged(self._quoted(), tag)
        elif first in ("[", "{"):
            value = self._tagged(self._flow(), tag)
        elif first == "*":
            value = self._alias()
        else:
            return self._plain(parent, tag)
        if not self._blank_line():
            raise self._error("something behind the end of a value")
        return value

    def _quoted(self) -> str:
        pattern = _DOUBLE if self._text[self._at] == '"' else _SINGLE
        found = pattern.match(self._text, self._at)
        if found is None:
            raise self._error("a quote that never ends")
        value = self._unquoted(found[0]) if pattern is _DOUBLE else single_quoted(found[0])
        self._at = found.end()
        return value

    def _unquoted(self, said: str) -> str:
        try:
            return double_quoted(said)
        except ValueError as error:
            raise self._error(str(error)) from None

    def _plain(self, parent: int, tag: str) -> Any:
        lines: list[str] = []
        while True:
            end = self._text.find("\n", self._at)
            end = len(self._text) if end < 0 else end
            line = re.split(r"(?:^|[ \t])#", self._text[self._at : end], maxsplit=1)[0].strip(" \t")
            if re.search(r":(?:[ \t]|$)", line):
                raise self._error("a colon inside a plain value")
            lines.append(line)
            self._at = end
            behind = re.compile(r"(?:[ \t]*\n)+([ ]*)(?![ #\n])").match(self._text, end)
            if behind is None or len(behind[1]) <= parent or behind.end() >= len(self._text):
                break
            lines += [""] * (behind[0].count("\n") - 1)
            self._at = behind.end()
        text = folded(lines)
        if tag in _PLAIN_TAGS:
            return resolved(text)
        return self._tagged(text, tag)

    def _block(self, parent: int, tag: str) -> Any:
        found = _BLOCK.match(self._text, self._at)
        if found is None:
            raise self._error("no block of text begins so")
        self._at = found.end()
        indent = found[2] or found[4]
        text, self._at = block_scalar(
            self._text, self._at, parent, fold=found[1] == ">", keep=found[3], indent=int(indent) if indent else 0
        )
        return self._tagged(text, tag)

    def _alias(self) -> Any:
        found = _ALIAS.match(self._text, self._at)
        if found is None or found[1] not in self._anchors:
            raise self._error("an alias of nothing")
        self._at = found.end()
        value, nodes = self._anchors[found[1]]
        self._nodes += nodes
        if self._nodes > _NODES_MAX:
            raise self._error(f"more than {_NODES_MAX} values")
        return value

    def _tagged(self, value: Any, tag: str) -> Any:
        if tag in _NUMBERS and isinstance(value, str):
            return resolved(value)
        if tag in _PLAIN_TAGS or (tag in _LISTS and is_list(value)):
            return value
        if tag in _PYTHON_TEXT and isinstance(value, str):
            return value
        if tag == "!binary" and isinstance(value, str):
            try:
                return base64.b64decode("".join(value.split()), validate=True)
            except (binascii.Error, ValueError):
                raise self._error("no base64, although !!binary says so") from None
        raise self._error(f"the tag !{tag}: objects of a program are never made")

    def _flow(self) -> Any:
        """`[...]` or `{...}`, also over several lines."""
        opening = self._text[self._at]
        closing = "]" if opening == "[" else "}"
        items: list[Any] = []
        members: dict[str, Any] = {}
        self._depth += 1
        if self._depth > _NESTING_MAX:
            raise self._error("nested too deeply")
        self._at += 1
        while True:
            self._flow_space()
            if self._text[self._at : self._at + 1] == closing:
                break
            self._nodes += 1
            value = self._flow_value(name=opening == "{")
            if opening == "{":
                self._flow_space()
                members[str(value)] = self._flow_member()
            else:
                items.append(value)
            self._flow_space()
            if self._text[self._at : self._at + 1] == ",":
                self._at += 1
            elif self._text[self._at : self._at + 1] != closing:
                raise self._error(f"a comma or {closing} is due")
        self._at += 1
        self._depth -= 1
        return items if opening == "[" else members

    def _flow_member(self) -> Any:
        if self._text[self._at : self._at + 1] != ":":
            return None
        self._at += 1
        self._flow_space()
        return None if self._text[self._at : self._at + 1] in (",", "}") else self._flow_value()

    def _flow_space(self) -> None:
        found = re.compile(r"(?:\s+#[^\n]*|\s+)*").match(self._text, self._at)
        assert found is not None, "it matches nothing too"
        self._at = found.end()

    def _flow_value(self, *, name: bool = False) -> Any:
        first = self._text[self._at : self._at + 1]
        if first in ("[", "{"):
            return self._flow()
        if first in ('"', "'"):
            return self._quoted()
        if first == "*":
            return self._alias()
        found = _FLOW_PLAIN.match(self._text, self._at)
        if found is None:
            raise self._error("no value begins so")
        self._at = found.end()
        return found[0].strip() if name else resolved(found[0].strip())
