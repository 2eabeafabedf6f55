"""Notations in which files, commands and headers write a secret beside its name: INI, netrc, XML, flags, cookies, JWK

Each is a pattern with the name, where there is a choice of it, and the value; `names.py` says which values are none.
"""

import re
from collections.abc import Iterator
from typing import Final

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
#: In quotes all of it goes: up to the same one, which an escape or a second one is not.
_ESCAPED: Final = r"(?:(?!(?P=q))[^\\\n]|\\.)"
_QUOTED: Final = r"(?=[^\d\"'\n]{0,64}\d)(?=[^A-Za-z\"'\n]{0,64}[A-Za-z])"

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
    re.compile(
        rf"\bcurl\b{_COMMAND}(?:-u|--user)[\s=]{{0,3}}(?P<q>[\"'])[^\s:\"']{{1,64}}:(?P<value>(?!\$){_ESCAPED}{{4,256}}+)(?P=q)"
    ),
    re.compile(rf"\bcurl\b{_COMMAND}(?:-u|--user)[\s=]{{0,3}}[^\s:\"']{{1,64}}:(?P<value>(?!\\){_WORD}{{4,256}})"),
    re.compile(
        rf"\b(?:mysql|mysqldump|mysqladmin|mariadb){_COMMAND}-p(?P<q>[\"']){_QUOTED}(?P<value>{_ESCAPED}{{4,256}}+)(?P=q)"
    ),
    re.compile(rf"\b(?:mysql|mysqldump|mysqladmin|mariadb){_COMMAND}-p{_MIXED}(?P<value>(?!\\){_WORD}{{4,256}})"),
    re.compile(
        rf"\b(?:sshpass|(?:docker|podman|registry)\s{{1,3}}login){_COMMAND}?-p\s{{0,3}}(?P<q>[\"'])"
        rf"(?P<value>(?!\$){_ESCAPED}{{4,256}}+)(?P=q)"
    ),
    re.compile(
        rf"\b(?:sshpass|(?:docker|podman|registry)\s{{1,3}}login){_COMMAND}?-p\s{{0,3}}(?P<value>(?!\\){_WORD}{{4,256}})"
    ),
)
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
            if not is_harmless(match["value"]) and not is_directory("pwd", match["value"]):
                yield Hit(*match.span("value"), "secret", match["value"])
