"""Names that say what stands under them: the values of members, parameters, assignments, headers and URLs, in text

Some names make a secret of whatever it is, others of what looks like one, because models and users say such words of
other things too.
"""

import re
from collections.abc import Iterator
from typing import Final

from .vendors import PLACEHOLDER, Hit

__all__ = [
    "SURE",
    "is_directory",
    "is_harmless",
    "is_header",
    "is_pair",
    "is_secret_number",
    "is_secret_value",
    "is_surely",
    "named",
]

#: What others, or the proxy, have put there.
_MASK: Final = re.compile(
    r"[*•xX.]{3,}|[$#]\{?\w+\}?|<[^<>]*>|\{\{[^{}]*\}\}|.*(?:REDACTED|redacted|(?i:your)[-_ ]).*"
    r"|(?:os\.(?:environ|getenv)|process\.env|import\.meta\.env|self\.|settings\.|config\.|\$\{).*"
)

#: How a name ends, in one spelling, whose value is a secret whatever it looks like ...
_SECRET_NAME: Final = re.compile(
    r"(?:password|passwd|passphrase|secret|secretkey|secretaccesskey|clientsecret|apikey|apitoken|accesstoken"
    r"|refreshtoken|authtoken|bearertoken|sessiontoken|securitytoken|idtoken|privatekey|accountkey|subscriptionkey"
    r"|authorization|credentials|connectionstring|xapikey|proxyauthorization|cookie|setcookie)$"
)
#: ... and where it must look like one, because models and users say such words of other things too.
_LIKELY_NAME: Final = re.compile(
    r"^(?:key|auth)$|(?:access|auth|encryption|license|master|secret|signing)key$|pwd$|credential$|token$"
)
#: ... and short for one, if there are letters and digits under it.
_PASS_NAME: Final = re.compile(r"^(?:admin|db|mail|mysql|root|smtp|user)?pass$")
_SHORT_VALUE: Final = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])\S{6,256}")
#: Tokens that open nothing.
_PAGE_NAME: Final = re.compile(r"(?:page|next|continuation|cursor|sync|progress|cancellation|pagination|resume)token$")
#: No secret under any name.
_NO_SECRET: Final = frozenset(
    {"string", "str", "number", "integer", "boolean", "object", "array", "null", "none", "true", "false", "bearer",
     "basic", "required", "optional", "password", "secret", "token", "test", "type", "text", "auto", "include", "omit",
     "same-origin", "query", "header", "headers", "granted", "denied", "path", "body"}
)  # fmt: skip
#: What is said in examples, by who has none; and what is said of one.
_DUMMY: Final = re.compile(
    r"(?i)(?:(?:test|fake|dummy|mock|example|sample|placeholder)[-_ ]?(?:api)?[-_]?(?:key|token|secret|password)"
    r"|not[-_ ]?(?:needed|required|used|set|provided)|none|unused|empty|missing|unset|unknown|undefined|lm-studio"
    r"|ollama|incorrect|invalid(?:[-_]credentials)?|disabled|enabled|encrypted|plaintext|hidden|\(hidden\)|api-?key-?auth"
    r"|authorization|cookies?|sk-\.\.\.)(?:[-_]?\d{1,3})?"
)
#: What stands for a secret that is kept elsewhere.
_REFERENCE: Final = re.compile(
    r"(?:arn:aws:(?:secretsmanager|ssm|kms):|env[:.]|vault:|op://|file://|ssm:|secretref:|projects/[^/\s]+/secrets/"
    r"|\.{1,2}/(?:[\w.-]+/)*[\w.-]+\.(?:crt|json|key|p12|pem|pfx|txt)\Z"
    r"|/(?:home|run/secrets|etc|var|tmp|usr|opt|mnt|Users|root|app|workspace)/)\S*"
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_FILE: Final = re.compile(r"[^\s]*/[^\s]*\.[A-Za-z0-9]{2,5}")
_WORD: Final = re.compile(r"[a-z]+")
#: Of words: a passphrase has none of these, what somebody says about one has.
_PHRASE: Final = re.compile(
    r"(?!.*\b(?:an?|and|are|be|for|in|is|must|not|of|or|the|this|to|user|with|your|password)\b)"
    r"[a-z0-9]+(?: [a-z0-9]+){2,7}"
)
#: ... or says it in other words.
_STRONG: Final = re.compile(r"(?=.*[A-Za-z])(?=.*[\d!@#$%^&*])[^\n]{8,64}")
_ABOUT: Final = re.compile(
    r"(?i)\b(?:an?|are|at|be|can|cannot|characters?|enter|for|has|in|incorrect|invalid|is|least|must|new|no|not|of|or"
    r"|passwords?|please|required|reset|the|this|to|too|user|was|wrong|you|your)\b"
)
_COOKIES: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}=[^\s;]*+(?:; ?[^\s;=]{1,256}(?:=[^\s;]*+)?){0,50};?")
#: `args.password1`, `req.body.pw`: what a program writes for it.
_ATTRIBUTE: Final = re.compile(
    r"[A-Za-z_$][\w$]*(?:(?:\.|\?\.|->|::)[A-Za-z_$][\w$]*)*(?:\.|->|::)"
    r"(?i:value|passw(?:or)?d|pass|pwd?|passphrase|secret|token|key|api_?key)_?\d{0,3}"
)
#: A working directory.
_DIRECTORY: Final = re.compile(r"(?:~?/|~$|[A-Za-z]:[\\/]|\.\.?(?:/|$)).*", re.DOTALL)
#: What keys to data are made of: words, numbers, dates, digests; a secret has a run of its own.
_RUN: Final = re.compile(r"[A-Za-z0-9+]{16,}")
_DIGEST: Final = re.compile(r"[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_LIKELY_VALUE: Final = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9+/=_.~:-]{20,}")

#: The value is looked at, not taken: behind escapes it may hold members itself, `"a":"{"password":"b"}"`.
_MEMBER: Final = re.compile(
    r"""(?<=["'])([A-Za-z0-9_. -]{2,64})["']\s*:\s*(?=(["'])((?:(?!\2)[^\\\n]|\\.)*)(?:\2|\Z))"""
)
_ASSIGNED: Final = re.compile(
    r"""(?<![A-Za-z0-9])([A-Za-z0-9_.-]{0,40}(?i:key|secret|token|passw(?:or)?d|pwd|credential))["']?"""
    r"""\s{0,3}(?:=>|[:=])\s{0,3}["']?(?:(?i:bearer)\s+)?([A-Za-z0-9+/=_.~%-]{16,})"""
)
_PARAMETER: Final = re.compile(
    r"[?&;](?i:key|api[-_]?key|(?:access_|auth_)?token|sig|(?:x-amz-|x-goog-)?signature|x-amz-security-token|password|secret)"
    r"=([^&;\s\"'#<>]{8,})"
)
#: Names that cannot be mistaken, before any value at all: as in a shell, a form or a program's text.
SURE: Final = (
    r"[A-Za-z0-9_.-]{0,40}?(?i:passw(?:or)?d|passphrase|api[-_]?key|client[-_]?secret|secret[-_]?key"
    r"|(?:access|refresh|auth|api|session)[-_]?token|secret)"
)
#: All of it or none: half a name before a bracket is no value.
_VALUE: Final = r"[^\s\"'`\\&;,<>(){}\[\]|]{6,512}+"
_SURELY: Final = (
    # DB_PASSWORD=any of a shell
    re.compile(rf"(?<![A-Za-z0-9_])(?=[A-Z0-9_]+=)({SURE})=(?P<value>{_VALUE})(?![(\[])"),
    # a form's or a query's
    re.compile(rf"[?&;]({SURE})=(?P<value>[^&;\s\"'#<>\\]{{6,512}})"),
    re.compile(rf"(?<![A-Za-z0-9_.-])({SURE})=(?P<value>[^&;\s\"'#<>\\]{{6,512}})(?=&\w+=)"),
    # any behind a name, in quotes
    re.compile(rf"(?<![A-Za-z0-9_.-])({SURE})\s{{0,3}}(?:=>|:=|[:=])\s{{0,3}}(?P<q>[\"'`])(?P<value>{_VALUE})(?P=q)"),
    # and as a program's type of text
    re.compile(
        rf"(?<![A-Za-z0-9_.-])({SURE})[\"']?\s{{0,3}}(?:=>|:=|[:=])\s{{0,3}}(?:(?:[a-z]{{1,16}}\.)?Secret(?:Str|Bytes|String)?\("
        rf"|String::from\(|[brfu]{{1,2}}(?=[\"']))(?P<q>[\"'])(?P<value>{_VALUE})(?P=q)"
    ),
    # and without, where it is no word and no name of a variable
    re.compile(
        rf"(?<![A-Za-z0-9_.-])({SURE})(?:=|:\s{{1,3}})(?=[^\s\d]{{0,64}}\d)(?=[^\sA-Za-z]{{0,64}}[A-Za-z])"
        rf"(?P<value>{_VALUE})(?![(\[])"
    ),
    re.compile(rf'(?i:name)="({SURE})"\r?\n(?:[^\r\n]{{1,200}}\r?\n){{0,3}}\r?\n(?P<value>[^\r\n]{{6,2000}})'),
)
#: A header as a list of two, or as an object that says its name.
_PAIR: Final = re.compile(
    r"""[\[(]\s{0,3}["']([A-Za-z][A-Za-z0-9_-]{2,63})["']\s{0,3},\s{0,3}(["'])((?:(?!\2)[^\\\n]|\\.){4,8192})\2\s{0,3}[\])]"""
)
_NAMED: Final = re.compile(
    r"""["'](?:name|key|header)["']\s{0,3}:\s{0,3}["']([A-Za-z0-9_. -]{2,64})["']\s{0,3},"""
    r"""\s{0,3}["']value["']\s{0,3}:\s{0,3}(["'])((?:(?!\2)[^\\\n]|\\.){4,8192})\2"""
)
#: What is a header's value, and no other header's name.
_NO_NAME: Final = re.compile(r"(?i:bearer|basic|token) \S{8,}|(?=\D*\d)\S+|[^\s=]{1,64}=\S{6,}.*")
_HEADER_CHARS: Final = 64
_HEADER: Final = re.compile(
    r"(?i:(?:proxy-)?authorization|(?:set-)?cookie|(?:[a-z]{1,20}[-_]){0,4}(?:api[-_]?key|auth[-_]?key|token|secret|password))"
)
#: Numbers that open something.
_NUMBER_NAME: Final = re.compile(r"(?:password|passwd|passphrase|pwd|passcode|secret|apikey)$")
_NUMBER: Final = re.compile(r"\d{4,64}")
_NUMBERED: Final = re.compile(
    r"(?<![A-Za-z0-9])([A-Za-z0-9_.-]{0,40}(?i:passw(?:or)?d|passphrase|pwd|passcode))"
    r"([\"']?)\s{0,3}(?:=>|:=|[:=])\s{0,3}([\"']?)(\d{4,64})(?![A-Za-z0-9_.-])"
)
_COOKIE: Final = re.compile(
    r"(?<![A-Za-z0-9])(?i:set-cookie|cookie):\s{0,3}([A-Za-z0-9_.-]{1,64}=[^\s;\"'<>\\]{0,4096}(?:;\s?[^\s;\"'<>\\]{1,4096}){0,50})"
)
#: One among them that is long enough: the first often says little.
_LONG_COOKIE: Final = re.compile(r"(?:^|; ?)[A-Za-z0-9_.-]{1,64}=[^\s;]{6,}")
_CREDENTIAL: Final = re.compile(r"(?<![A-Za-z0-9])(?i:bearer)\s+([A-Za-z0-9+/=_.~-]{16,})")
#: Also with what should have been escaped in it, unless what follows the colon is a port.
_IN_URL: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{1,20}://(?:[^\s:/?#@\"'\[\]<>]*:([^\s/?#@\"'<>\[\]]{3,}(?:@[^\s/?#@\"'<>\[\]]{0,256}){0,8})"
    r"|[^\s:/?#@.\"'\[\]<>]*:(?!\d{1,5}[/?#]|(?i:port)\b|[$%{])([^\s\"'<>\[\]]{3,256}))@(?=[^\s/?#@\"'<>\[\]:]+(?:[:/?#\s\"'<>\[\]),;]|$))"
)


def _is_secret_name(name: str) -> bool:
    """Whether what stands under it is a secret."""
    return _SECRET_NAME.search(_spelled(name)) is not None


def is_secret_value(name: str, value: str) -> bool:
    """Whether a member of this name has a secret for its value."""
    if is_harmless(value) or is_directory(name, value):
        return False
    if _is_secret_name(name):
        if _WORD.fullmatch(value) and _spelled(name).endswith(("cookie", "authorization")):
            return False
        if "pass" in name.lower() and (_PHRASE.fullmatch(value) or _is_strong_phrase(value)):
            return True
        if _spelled(name).endswith("cookie") and _COOKIES.fullmatch(value) and _LONG_COOKIE.search(value):
            return True
        scheme = value.partition(" ")[0].lower()
        return scheme in ("bearer", "basic", "token") or (len(value) > 3 and not any(map(str.isspace, value.strip())))
    if _PASS_NAME.search(_spelled(name)):
        return _SHORT_VALUE.fullmatch(value) is not None
    return _is_likely(name, value)


def _is_likely(name: str, value: str) -> bool:
    spelled = _spelled(name)
    if _PAGE_NAME.search(spelled) or (_LIKELY_NAME.search(spelled) is None and not _is_secret_name(name)):
        return False
    if _UUID.fullmatch(value) or _FILE.fullmatch(value) or (_SHA256.fullmatch(value) and spelled != "token"):
        return _is_secret_name(name)
    return not _is_of_data(spelled, value) and _LIKELY_VALUE.fullmatch(value) is not None


def _is_of_data(name: str, value: str) -> bool:
    """Whether it is a key to data, not to a door: those are called so as well."""
    if name == "token":
        return _COMMIT.fullmatch(value) is not None
    return name in ("key", "auth") and (
        "://" in value or _DIGEST.fullmatch(value) is not None or not any(map(_is_mixed, _RUN.findall(value)))
    )


def _is_mixed(run: str) -> bool:
    return not (run.isalpha() or run.isdigit())


def _is_strong_phrase(value: str) -> bool:
    """Whether words are a password, not about one."""
    return _ABOUT.search(value) is None and _STRONG.fullmatch(value) is not None


def is_directory(name: str, value: str) -> bool:
    """Whether it is where a shell stands, under a name that is also short for a password."""
    return _spelled(name).endswith("pwd") and _DIRECTORY.fullmatch(value) is not None


def _spelled(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def is_header(name: str) -> bool:
    """Whether it is the name of a header whose value is a secret."""
    return len(name) <= _HEADER_CHARS and _HEADER.fullmatch(name) is not None


def is_pair(name: str, value: str) -> bool:
    """Whether these two in a list are a header and its secret value; a list of names is none."""
    return (
        _HEADER.fullmatch(name) is not None and _NO_NAME.fullmatch(value) is not None and is_secret_value(name, value)
    )


def is_secret_number(name: str, digits: str) -> bool:
    """The same of a number."""
    return _NUMBER.fullmatch(digits) is not None and _NUMBER_NAME.search(_spelled(name)) is not None


# -- in text ----------------------------------------------------------------------------------------------------------


def named(text: str) -> Iterator[Hit]:
    """Every secret that something beside it gives away."""
    for pattern, vendor in ((_CREDENTIAL, "bearer"), (_PARAMETER, "secret"), (_COOKIE, "cookie")):
        for match in pattern.finditer(text):
            if vendor == "cookie" and not _LONG_COOKIE.search(match[1]):
                continue
            if not is_harmless(match[1]) and (vendor != "bearer" or _LIKELY_VALUE.fullmatch(match[1])):
                yield _hit(match, 1, vendor)
    for match in _IN_URL.finditer(text):
        if not is_harmless(match[1] or match[2]):
            yield _hit(match, 1 if match[1] else 2, "password")
    for match in _MEMBER.finditer(text):
        if is_secret_value(match[1], match[3]):
            yield _hit(match, 3, "secret")
    for pattern, says in ((_PAIR, is_pair), (_NAMED, is_secret_value)):
        for match in pattern.finditer(text):
            if says(match[1], match[3]):
                yield _hit(match, 3, "secret")
    for match in _ASSIGNED.finditer(text):
        if _is_likely(match[1], match[2]) and not is_harmless(match[2]) and not is_directory(match[1], match[2]):
            yield _hit(match, 2, "secret")
    for match in _NUMBERED.finditer(text):
        # As JSON writes a number, inside some text: what stands for it is one too.
        yield _hit(match, 4, "digits" if match[2] and not match[3] else "secret")
    for pattern in _SURELY:
        for match in pattern.finditer(text):
            if is_surely(match[1], match["value"]):
                yield Hit(*match.span("value"), "secret", match["value"])


def is_surely(name: str, value: str) -> bool:
    """Not where the value names what the name does: `password=password_of(user)`."""
    said = _spelled(value)
    named = not any(map(str.isdigit, said)) and (_SECRET_NAME.search(said) or said.startswith(_spelled(name)[-8:]))
    written = _ATTRIBUTE.fullmatch(value) is not None or is_directory(name, value)
    return not is_harmless(value) and not named and not written


def _hit(match: re.Match[str], group: int, vendor: str) -> Hit:
    return Hit(*match.span(group), vendor, match[group])


def is_harmless(value: str) -> bool:
    """Whether it is no secret under any name: a mask, a place for one, a word of a schema."""
    return (
        any(pattern.fullmatch(value) for pattern in (_MASK, _DUMMY, _REFERENCE))
        or PLACEHOLDER.search(value) is not None
        or value.lower() in _NO_SECRET
    )
