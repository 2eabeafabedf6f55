"""Notations in which files, commands and headers write a secret beside its name: INI, netrc, XML, flags, cookies, JWK

Each is a pattern with the name, where there is a choice of it, and the value; `names.py` says which values are none.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from .names import SURE, is_directory, is_harmless, is_surely
from .vendors import Hit

__all__ = ["noted"]

_END: Final = r"(?=[\s\"'`\\,;)}\]]|\Z)"
#: Letters and digits: no word, no number and no name of a variable.
_MIXED: Final = r"(?=[^\s\d]{0,64}\d)(?=[^\sA-Za-z]{0,64}[A-Za-z])"
_BARE: Final = r"[^\s\"'`\\,;<>(){}\[\]|]{6,512}+(?![(\[{])"
_COMMAND: Final = r"[^\n|;]{0,200}?\s"
#: Of a command's word without quotes: an escape belongs to it, unless it closes what the command stands in, or ends a
#: line. Half of an escape would leave a reader of the JSON around it without its end.
_WORD: Final = r"(?:[^\s\"'$\\]|\\[^\snrt](?=[^\s\"'\\,;)}\]]))"
#: The same whatever quote opens it, and wherever that is closed: up to the next blank or quote, but no escape of that,
#: which counts as its last character only. Nothing of a long one is left.
_CHAR: Final = r"(?:[^\s\"'$\\]|\\(?!\\{0,8}[\"']))"
_UP_TO: Final = rf"({_CHAR}{{4,1024}}+|{_CHAR}{{3}}(?=\\))"
#: In quotes all of it goes, up to the same one: in single ones a backslash is a character as any other, and a quote is
#: written outside, `'\''`.
_DOUBLE: Final = r"((?!\$)(?:[^\"\\\n]|\\.){4,256}+)\""
_SINGLE: Final = r"((?!\$)(?:[^'\n]|'\\''){4,256}+)'"
#: Where nobody closes them, as the text is torn there, or its line ends: no other quote may stand before that, as it
#: would be one of the text around the command.
_TORN: Final = r"(?=\n|\.\.\.|…|\Z)"
_OPEN: Final = rf"((?!\$)(?:[^\"'\\\n]|\\.){{4,256}}?\\?){_TORN}"
#: Whoever says less as a password says nothing with it.
_CHARS_MIN: Final = 3
#: A text that is JSON, and in it all up to the end of a line.
_OF_JSON: Final = re.compile(r"\s*(?:\{\s*\"|\[\s*[\"{\[])")
_LINE: Final = re.compile(r"(?:[^\\]|\\[^nrt])*+")

#: With a name that is sure, so any value that a program has not written for it.
_NAMED: Final = (
    # INI, TOML, properties: all of a line
    re.compile(
        rf"(?m)^[ \t+-]{{0,16}}({SURE})[ \t]{{1,16}}=[ \t]{{0,16}}{_MIXED}(?P<value>{_BARE})[ \t]{{0,16}}(?:[#;].*)?$"
    ),
    # of words, in quotes
    re.compile(
        rf"(?<![A-Za-z0-9_.-])({SURE})[\"']?\s{{0,3}}(?:=>|:=|[:=])\s{{0,3}}(?P<q>[\"'])(?=[^\"'\n]{{0,256}}\d)"
        rf"(?=[^\"'\n]{{0,256}}[\s;&,(){{}}<>|\[\]])(?P<value>[^\"'\\\n]{{6,256}})(?P=q)"
    ),
    re.compile(rf"<({SURE})(?:\s[^<>]{{0,200}})?>\s{{0,3}}(?P<value>[^<>\s]{{4,512}})\s{{0,3}}</"),
    re.compile(rf"(?i:key|name)=\"({SURE})\"\s{{1,3}}(?i:value)=\"(?P<value>[^\"\s]{{4,512}})\""),
    re.compile(rf"(?:set\s{{1,3}}-\w{{1,3}}|setx|setenv)\s{{1,3}}({SURE})\s{{1,3}}[\"']?(?P<value>{_BARE})"),
    # headers, one a line or behind a command's `-H`
    re.compile(
        r"(?<![A-Za-z0-9_-])((?i:(?:x-)?(?:[a-z]{1,20}-){0,2}api-key|x-(?:[a-z]{1,20}-)?token|private-token"
        r"|ocp-apim-subscription-key)):[ \t]{1,3}(?P<value>[A-Za-z0-9+/=_.~-]{8,512}+)(?=[\"'\r\n]|\\|\Z)"
    ),
)
#: The same, where words are none of its own: with its own quote in it, behind a backslash or twice.
_QUOTING: Final = (
    re.compile(
        rf"(?<![A-Za-z0-9_.-])({SURE})\s{{0,3}}(?:=>|:=|[:=])\s{{0,3}}\"(?=[^\s\d]{{0,64}}\d)(?=[^\s\"\\]{{0,256}}\\)"
        r"(?P<value>(?:[^\s\"\\]|\\\S){6,256})\""
    ),
    re.compile(
        rf"(?<![A-Za-z0-9_.-])({SURE})\s{{0,3}}(?:=>|:=|[:=])\s{{0,3}}'(?=[^\s\d]{{0,64}}\d)(?=[^\s'\\]{{0,256}}(?:\\|''))"
        r"(?P<value>(?:[^\s'\\]|\\\S|''){6,256})'(?!')"
    ),
)
#: With nothing to choose from.
_FIXED: Final = (
    re.compile(r"(?<![A-Za-z0-9])(?i:login|machine|account)\s{1,8}\S{1,128}\s{1,8}password\s{1,8}(?P<value>\S{4,256})"),
    re.compile(
        r"(?<![A-Za-z0-9-])(?i:(?:proxy-)?authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?i:token|bearer|apikey)\s{1,3})?"
        rf"(?!AWS4-){_MIXED}(?P<value>[A-Za-z0-9+/=_.~-]{{8,512}}+){_END}"
    ),
    re.compile(
        r"(?i:authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?Digest\s[^\r\n]{0,512}?\bresponse=\\?\"(?P<value>[^\"\\\s]{8,128})"
    ),
    re.compile(
        r"(?<![A-Za-z0-9_])(?:[A-Z][A-Z0-9_]{0,40}_(?:PASS|PWD|TOKEN|PAT)|SECRET_KEY_BASE)"
        rf"(?<!PAGE_TOKEN)(?<!NEXT_TOKEN)(?<!MAX_TOKEN)=[\"']?{_MIXED}(?P<value>{_BARE})"
    ),
    re.compile(r"(?<=;)[ ]?(?i:pwd)=(?P<value>[^\s;\"']{4,256})(?=[;\"'\s]|\Z)"),
    re.compile(rf"(?<![A-Za-z0-9_])_auth\s{{0,3}}=\s{{0,3}}[\"']?(?P<value>[A-Za-z0-9+/=_-]{{8,512}}+){_END}"),
    re.compile(rf"\bhttps?://{_MIXED}(?P<value>[A-Za-z0-9_-]{{20,256}}+)@(?=[A-Za-z0-9])"),
    re.compile(
        r"(?<![A-Za-z0-9-])--(?i:(?:[a-z]{1,20}-){0,2}(?:password|passwd|pass|passphrase|api-?key|token|secret|secret-key))"
        rf"(?:=|[\"']?\s{{1,3}}|[\"'],\s{{0,3}})[\"']?{_MIXED}(?P<value>{_BARE})"
    ),
)


class _Command(NamedTuple):
    """How a command takes a password, each with the value for its group."""

    #: Closed by the same quote, of the one sort or the other, or open.
    quoted: re.Pattern[str]
    bare: Sequence[re.Pattern[str]]

    @staticmethod
    def of(option: str, user: str = "", *, in_quotes: str = "", without: str = "") -> "_Command":
        """What stands before it, in its quotes too, and what holds of it there and without."""
        double, single = rf"\"{user}{in_quotes}", rf"'{user}{in_quotes}"
        return _Command(
            re.compile(rf"{option}(?:{double}{_DOUBLE}|{single}{_SINGLE}|{double}{_OPEN}|{single}{_OPEN})"),
            (
                re.compile(rf"{option}[\"']?{user}{without}{_UP_TO}"),
                re.compile(rf"{option}{user}{without}((?!\\){_WORD}{{4,256}})"),
            ),
        )


_COMMANDS: Final = (
    _Command.of(rf"\bcurl\b{_COMMAND}(?:-u|--user)[\s=]{{0,3}}", r"[^\s:\"']{1,64}:"),
    _Command.of(
        rf"\b(?:mysql|mysqldump|mysqladmin|mariadb){_COMMAND}-p",
        in_quotes=r"(?=[^\d\"'\n]{0,64}\d)(?=[^A-Za-z\"'\n]{0,64}[A-Za-z])",
        without=_MIXED,
    ),
    _Command.of(rf"\b(?:sshpass|(?:docker|podman|registry)\s{{1,3}}login){_COMMAND}?-p\s{{0,3}}"),
)
#: Of the groups of what is quoted those of quotes that somebody closes; behind others prose may stand.
_CLOSED: Final = 2
#: Without one of them none of those.
_COMMAND_NAMES: Final = re.compile(r"curl|mysql|mariadb|sshpass|login")
#: Of keys as JSON (RFC 7517) what is private.
_OF_JWK: Final = re.compile(
    r"[\"'](?:d|p|q|dp|dq|qi|k)[\"']\s{0,3}:\s{0,3}[\"'](?P<value>[A-Za-z0-9_-]{20,8192}+)[\"']"
)
_KEY_TYPE: Final = re.compile(r"[\"']kty[\"']\s{0,3}:\s{0,3}[\"'](?:EC|RSA|OKP|oct)[\"']")
#: What is said about a password.
_SAID: Final = re.compile(
    r"(?i)\b(?:an?|are|at|be|cannot|characters?|enter|for|in|incorrect|invalid|is|least|must|not|of|or|required|the|this|to"
    r"|user|was|wrong|your|password|passwords)\b"
)


def noted(text: str) -> Iterator[Hit]:
    """Every secret in one of them."""
    for pattern in _NAMED:
        for match in pattern.finditer(text):
            if is_surely(match[1], match["value"]) and not _SAID.search(match["value"]):
                yield Hit(*match.span("value"), "secret", match["value"])
    for pattern in _QUOTING:
        for match in pattern.finditer(text):
            if is_surely(match[1], match["value"]):
                yield Hit(*match.span("value"), "secret", match["value"])
    for pattern in (*_FIXED, *([_OF_JWK] if _KEY_TYPE.search(text) else [])):
        for match in pattern.finditer(text):
            if not _is_none(match["value"]):
                yield Hit(*match.span("value"), "secret", match["value"])
    yield from _in_commands(text)


def _in_commands(text: str) -> Iterator[Hit]:
    if _COMMAND_NAMES.search(text) is None:
        return
    in_json = _OF_JSON.match(text) is not None
    for command in _COMMANDS:
        for match in command.quoted.finditer(text):
            group = match.lastindex or 0
            if group <= _CLOSED or not _is_none(match[group].split(maxsplit=1)[0]):
                yield from _in_command(text, *match.span(group))
        for pattern in command.bare:
            for match in pattern.finditer(text):
                line = _LINE.match(text, *match.span(1)) if in_json else None
                yield from _in_command(text, match.start(1), line.end() if line else match.end(1))


def _in_command(text: str, start: int, end: int) -> Iterator[Hit]:
    if end - start >= _CHARS_MIN and not _is_none(text[start:end]):
        yield Hit(start, end, "secret", text[start:end])


def _is_none(value: str) -> bool:
    return is_harmless(value) or is_directory("pwd", value)
