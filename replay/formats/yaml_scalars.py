"""Scalars of YAML: quotes taken off, lines folded, blocks cut out, plain words made numbers"""

import re
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["block_scalar", "double_quoted", "folded", "resolved", "single_quoted"]

_ESCAPES: Final = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
    " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_HEX: Final = {"x": 2, "u": 4, "U": 8}
#: An escape, a line break with the white space around it, or text.
_PART: Final = re.compile(r"\\\n[ \t]*((?:\n[ \t]*)*)|\\(.)|[ \t]*((?:\n[ \t]*)+)|([^\\\n \t]+|[ \t]+)", re.DOTALL)
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,300})")
#: As the YAML of Python's libraries has it: no float without a point.
_FLOAT: Final = re.compile(r"[-+]?[0-9]{1,300}\.[0-9]{0,300}(?:[eE][-+][0-9]{1,3})?")
_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}


def double_quoted(said: str) -> str:
    """With the quotes; raises ValueError for an escape that is none."""
    inside, parts, at = said[1:-1], list[str](), 0
    while at < len(inside):
        found = _PART.match(inside, at)
        assert found is not None, "every character is part of something"
        at = found.end()
        if found[1] is not None:  # an escaped end of line: nothing, but for the blank lines behind it
            parts.append("\n" * found[1].count("\n"))
        elif found[2] is not None:
            digits = _HEX.get(found[2], 0)
            if digits:
                parts.append(_character(inside[at : at + digits], digits))
                at += digits
            elif found[2] in _ESCAPES:
                parts.append(_ESCAPES[found[2]])
            else:
                raise ValueError(f"\\{found[2]} escapes nothing")
        elif found[3] is not None:
            parts.append(_break(found[3]))
        else:
            parts.append(found[4])
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(digits: str, due: int) -> str:
    if not re.fullmatch(r"[0-9A-Fa-f]+", digits) or len(digits) != due or int(digits, 16) > 0x10FFFF:
        raise ValueError("an escape that is no character")
    return chr(int(digits, 16))


def _break(said: str) -> str:
    lines = said.count("\n")
    return " " if lines == 1 else "\n" * (lines - 1)


def single_quoted(said: str) -> str:
    """With the quotes."""
    inside = said[1:-1].replace("''", "'")
    return re.sub(r"[ \t]*((?:\n[ \t]*)+)", lambda found: _break(found[1]), inside)


def folded(lines: Sequence[str]) -> str:
    """Of a plain value: its lines become one, empty ones breaks."""
    text = "\n".join(lines)
    return re.sub(r"\n+", lambda found: _break(found[0]), text)


def block_scalar(text: str, at: int, parent: int, *, fold: bool, keep: str, indent: int) -> tuple[str, int]:
    """What stands below `|` or `>`, and where it ends. `keep` is the chomping: nothing, `-` or `+`."""
    lines: list[str] = []
    inner = max(0, parent) + indent if indent else 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        blank = not line.strip(" ")
        if not inner and not blank:
            inner = len(line) - len(line.lstrip(" "))
            if inner <= parent:
                break
        if not blank and len(line) - len(line.lstrip(" ")) < inner:
            break
        lines.append(line[inner:] if inner else "")
        at = min(end + 1, len(text))
    body = lines[: len(lines) - _empty_behind(lines)]
    said = _folded_block(body) if fold else "\n".join(body)
    if keep == "+":
        return said + "\n" * (len(lines) - len(body) + bool(body)), at
    return said + ("\n" if body and keep != "-" else ""), at


def _empty_behind(lines: Sequence[str]) -> int:
    return next((count for count, line in enumerate(reversed(lines)) if line), len(lines))


def _folded_block(lines: Sequence[str]) -> str:
    """Lines become one but beside empty lines and those that are indented further."""
    leading = next((at for at, line in enumerate(lines) if line), len(lines))
    parts = ["\n" * leading]
    breaks, lines = 0, lines[leading:]
    for at, line in enumerate(lines):
        if not line:
            breaks += 1
            continue
        if at:
            further = line[:1] in " \t" or lines[at - 1 - breaks][:1] in (" ", "\t")
            parts.append("\n" * (breaks + 1) if further else "\n" * breaks or " ")
        parts.append(line)
        breaks = 0
    return "".join(parts)


def resolved(text: str) -> Any:
    """A plain word as YAML 1.2's core has it."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
