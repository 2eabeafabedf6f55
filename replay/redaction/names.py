"""Names that make a secret of their value: members, parameters, assignments, headers, flags and URLs, in text

A sure name (`password`, `api_key`) makes a secret of any value, a likely one (`token`, `key`) only of what looks like a
key, because models and users say such words of other things too.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["PLACEHOLDER", "Hit", "is_header", "is_pair", "is_secret_number", "is_secret_value", "named"]

#: What redaction writes in place of a secret.
PLACEHOLDER: Final = re.compile(r"\[redacted-([a-z0-9]+)(?:-(\d+))?\]")


class Hit(NamedTuple):
    """A secret at `text[start:end]`, its vendor, and its text without escapes."""

    start: int
    end: int
    vendor: str
    secret: str


# -- names, spelled without case and punctuation ----------------------------------------------------------------------

_SURE_NAME: Final = re.compile(
    r"(?:password|passwd|passphrase|secret|secretkey|secretaccesskey|clientsecret|apikey|apitoken|accesstoken"
    r"|refreshtoken|authtoken|bearertoken|sessiontoken|securitytoken|idtoken|privatekey|accountkey|subscriptionkey"
    r"|authorization|credentials|connectionstring|xapikey|proxyauthorization|cookie|setcookie)$"
)
_LIKELY_NAME: Final = re.compile(
    r"^(?:key|auth)$|(?:access|auth|encryption|license|master|secret|signing)key$|pwd$|credential$|token$"
)
#: Of a shorter value, if it mixes letters and digits.
_PASS_NAME: Final = re.compile(r"^(?:admin|db|mail|mysql|root|smtp|user)?pass$")
_NUMBER_NAME: Final = re.compile(r"(?:password|passwd|passphrase|pwd|passcode|secret|apikey)$")
#: Tokens that open nothing.
_PAGE_NAME: Final = re.compile(r"(?:page|next|continuation|cursor|sync|progress|cancellation|pagination|resume)token$")
_HEADER: Final = re.compile(
    r"(?i:(?:proxy-)?authorization|(?:set-)?cookie|(?:[a-z]{1,20}[-_]){0,4}(?:api[-_]?key|auth[-_]?key|token|secret|password))"
)
_HEADER_CHARS: Final = 64

# -- values -----------------------------------------------------------------------------------------------------------

_NO_SECRET: Final = frozenset(
    {"string", "str", "number", "integer", "boolean", "object", "array", "null", "none", "true", "false", "bearer",
     "basic", "required", "optional", "password", "secret", "token", "test", "type", "text", "auto", "include", "omit",
     "same-origin", "query", "header", "headers", "granted", "denied", "path", "body"}
)  # fmt: skip
#: Masks and variables, dummies in examples, references to a secret that is kept elsewhere.
_HARMLESS: Final = (
    re.compile(
        r"[*•xX.]{3,}|[$#]\{?\w+\}?|<[^<>]*>|\{\{[^{}]*\}\}|.*(?:REDACTED|redacted|(?i:your)[-_ ]).*"
        r"|(?:os\.(?:environ|getenv)|process\.env|import\.meta\.env|self\.|settings\.|config\.|\$\{).*"
    ),
    re.compile(
        r"(?i)(?:(?:test|fake|dummy|mock|example|sample|placeholder)[-_ ]?(?:api)?[-_]?(?:key|token|secret|password)"
        r"|not[-_ ]?(?:needed|required|used|set|provided)|none|unused|empty|missing|unset|unknown|undefined|lm-studio"
        r"|ollama|incorrect|invalid(?:[-_]credentials)?|disabled|enabled|encrypted|plaintext|hidden|\(hidden\)"
        r"|api-?key-?auth|authorization|cookies?|sk-\.\.\.)(?:[-_]?\d{1,3})?"
    ),
    re.compile(
        r"(?:arn:aws:(?:secretsmanager|ssm|kms):|env[:.]|vault:|op://|file://|ssm:|secretref:|projects/[^/\s]+/secrets/"
        r"|\.{1,2}/(?:[\w.-]+/)*[\w.-]+\.(?:crt|json|key|p12|pem|pfx|txt)\Z"
        r"|/(?:home|run/secrets|etc|var|tmp|usr|opt|mnt|Users|root|app|workspace)/)\S*"
    ),
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_DIGEST: Final = re.compile(r"[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}")
_FILE: Final = re.compile(r"[^\s]*/[^\s]*\.[A-Za-z0-9]{2,5}")
_DIRECTORY: Final = re.compile(r"(?:~?/|~$|[A-Za-z]:[\\/]|\.\.?(?:/|$)).*", re.DOTALL)
_WORD: Final = re.compile(r"[a-z]+")
#: A passphrase, as opposed to a sentence about one.
_PHRASE: Final = re.compile(r"[a-z0-9]+(?: [a-z0-9]+){2,7}|(?=.*[A-Za-z])(?=.*[\d!@#$%^&*])[^\n]{8,64}")
_ABOUT: Final = re.compile(
    r"(?i)\b(?:an?|are|at|be|can|cannot|characters?|enter|for|has|in|incorrect|invalid|is|least|must|new|no|not|of|or"
    r"|passwords?|please|required|reset|the|this|to|too|user|was|wrong|you|your)\b"
)
_COOKIES: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}=[^\s;]*+(?:; ?[^\s;=]{1,256}(?:=[^\s;]*+)?){0,50};?")
_LONG_COOKIE: Final = re.compile(r"(?:^|; ?)[A-Za-z0-9_.-]{1,64}=[^\s;]{6,}")
#: `args.password1`, `req.body.pw`: a program reads the value.
_ATTRIBUTE: Final = re.compile(
    r"[A-Za-z_$][\w$]*(?:(?:\.|\?\.|->|::)[A-Za-z_$][\w$]*)*(?:\.|->|::)"
    r"(?i:value|passw(?:or)?d|pass|pwd?|passphrase|secret|token|key|api_?key)_?\d{0,3}"
)
#: Keys of data consist of words, numbers, dates and digests; a secret has a run that mixes letters and digits.
_RUN: Final = re.compile(r"[A-Za-z0-9+]{16,}")
_LIKELY_VALUE: Final = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9+/=_.~:-]{20,}")
_SHORT_VALUE: Final = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])\S{6,256}")
_NUMBER: Final = re.compile(r"\d{4,64}")
#: A header's value, as opposed to another header's name.
_HEADER_VALUE: Final = re.compile(r"(?i:bearer|basic|token) \S{8,}|(?=\D*\d)\S+|[^\s=]{1,64}=\S{6,}.*")


def _spelled(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _is_harmless(value: str) -> bool:
    """Return whether a value is harmless under any name: a mask, a variable, a word of a schema."""
    return (
        value.lower() in _NO_SECRET
        or any(pattern.fullmatch(value) for pattern in _HARMLESS)
        or PLACEHOLDER.search(value) is not None
    )


def _is_directory(name: str, value: str) -> bool:
    """Return whether a value is a shell's working directory: `pwd` is short for that too."""
    return _spelled(name).endswith("pwd") and _DIRECTORY.fullmatch(value) is not None


def is_secret_value(name: str, value: str) -> bool:
    """Return whether a member of this name has a secret as its value."""
    spelled = _spelled(name)
    if _is_harmless(value) or _is_directory(name, value):
        return False
    if _SURE_NAME.search(spelled) is None:
        short = _PASS_NAME.search(spelled) is not None and _SHORT_VALUE.fullmatch(value) is not None
        return short or _is_likely(spelled, value)
    if spelled.endswith(("cookie", "authorization")) and _WORD.fullmatch(value):
        return False
    if "pass" in spelled and _PHRASE.fullmatch(value) and not _ABOUT.search(value):
        return True
    if spelled.endswith("cookie") and _COOKIES.fullmatch(value) and _LONG_COOKIE.search(value):
        return True
    scheme = value.partition(" ")[0].lower()
    return scheme in ("bearer", "basic", "token") or (len(value) > 3 and not any(map(str.isspace, value.strip())))


def _is_likely(spelled: str, value: str) -> bool:
    sure = _SURE_NAME.search(spelled) is not None
    if _PAGE_NAME.search(spelled) or not (sure or _LIKELY_NAME.search(spelled)):
        return False
    digest = _DIGEST.fullmatch(value) is not None
    if _UUID.fullmatch(value) or _FILE.fullmatch(value) or (digest and len(value) == 64 and spelled != "token"):
        return sure
    if spelled == "token" and digest and len(value) == 40:  # a commit
        return False
    mixed = any(not (run.isalpha() or run.isdigit()) for run in _RUN.findall(value))
    if spelled in ("key", "auth") and ("://" in value or digest or not mixed):
        return False
    return _LIKELY_VALUE.fullmatch(value) is not None


def is_header(name: str) -> bool:
    """Return whether a header of this name holds a secret."""
    return len(name) <= _HEADER_CHARS and _HEADER.fullmatch(name) is not None


def is_pair(name: str, value: str) -> bool:
    """Return whether two strings in a list are a header and its secret value, not two names."""
    return is_header(name) and _HEADER_VALUE.fullmatch(value) is not None and is_secret_value(name, value)


def is_secret_number(name: str, digits: str) -> bool:
    """Return whether a member of this name has a number for a secret."""
    return _NUMBER.fullmatch(digits) is not None and _NUMBER_NAME.search(_spelled(name)) is not None


# -- in text ----------------------------------------------------------------------------------------------------------

_SURE: Final = (
    r"[A-Za-z0-9_.-]{0,40}?(?i:passw(?:or)?d|passphrase|api[-_]?key|client[-_]?secret|secret[-_]?key"
    r"|(?:access|refresh|auth|api|session)[-_]?token|secret)"
)
#: Letters and digits: no word, no number and no variable.
_MIXED: Final = r"(?=[^\s\d]{0,64}\d)(?=[^\sA-Za-z]{0,64}[A-Za-z])"
#: Possessive and not before a bracket, so that half a call is never a value.
_BARE: Final = r"[^\s\"'`\\&;,<>(){}\[\]|]{6,512}+(?![(\[{])"
_IS: Final = r"\s{0,3}(?:=>|:=|[:=])\s{0,3}"
_START: Final = r"(?<![A-Za-z0-9_.-])"

#: Any value after a sure name, unless a program computes it.
_SURELY: Final = (
    re.compile(rf"(?<![A-Za-z0-9_])(?=[A-Z0-9_]+=)({_SURE})=(?P<value>{_BARE})"),  # a shell's
    re.compile(rf"[?&;]({_SURE})=(?P<value>[^&;\s\"'#<>\\]{{6,512}})"),  # a form's or a query's
    re.compile(rf"{_START}({_SURE})=(?P<value>[^&;\s\"'#<>\\]{{6,512}})(?=&\w+=)"),
    re.compile(rf"{_START}({_SURE}){_IS}(?P<q>[\"'`])(?P<value>{_BARE})(?P=q)"),
    re.compile(
        rf"{_START}({_SURE})[\"']?{_IS}(?:(?:[a-z]{{1,16}}\.)?Secret(?:Str|Bytes|String)?\(|String::from\("
        rf"|[brfu]{{1,2}}(?=[\"']))(?P<q>[\"'])(?P<value>{_BARE})(?P=q)"
    ),
    re.compile(rf"{_START}({_SURE})(?:=|:\s{{1,3}}){_MIXED}(?P<value>{_BARE})"),
    re.compile(rf'(?i:name)="({_SURE})"\r?\n(?:[^\r\n]{{1,200}}\r?\n){{0,3}}\r?\n(?P<value>[^\r\n]{{6,2000}})'),
    re.compile(
        rf"{_START}({_SURE})[\"']?{_IS}(?P<q>[\"'])(?=(?:[^\"'\\\n]|\\.){{0,256}}?\d)"
        r"(?=[^\"'\n]{0,256}[\s;&,(){}<>|\[\]\\])"
        r"(?P<value>(?:[^\"'\\\n]|\\.){6,256})(?P=q)"
    ),
    re.compile(
        r"(?<![A-Za-z0-9_-])((?i:(?:x-)?(?:[a-z]{1,20}-){0,2}api-key|x-(?:[a-z]{1,20}-)?token|private-token"
        r"|ocp-apim-subscription-key)):[ \t]{1,3}(?P<value>[A-Za-z0-9+/=_.~-]{8,512}+)(?=[\"'\r\n]|\\|\Z)"
    ),
)
#: Any value in a place that can hold nothing but a credential.
_FIXED: Final = (
    re.compile(
        r"(?<![A-Za-z0-9-])(?i:(?:proxy-)?authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?i:token|bearer|apikey)\s{1,3})?"
        rf"(?!AWS4-){_MIXED}(?P<value>[A-Za-z0-9+/=_.~-]{{8,512}}+)(?=[\s\"'`\\,;)}}\]]|\Z)"
    ),
    re.compile(
        r"(?<![A-Za-z0-9_])(?:[A-Z][A-Z0-9_]{0,40}_(?:PASS|PWD|TOKEN|PAT)|SECRET_KEY_BASE)"
        rf"(?<!PAGE_TOKEN)(?<!NEXT_TOKEN)(?<!MAX_TOKEN)=[\"']?{_MIXED}(?P<value>{_BARE})"
    ),
    re.compile(r"(?<=;)[ ]?(?i:pwd)=(?P<value>[^\s;\"']{4,256})(?=[;\"'\s]|\Z)"),  # a connection string's
    re.compile(rf"\bhttps?://{_MIXED}(?P<value>[A-Za-z0-9_-]{{20,256}}+)@(?=[A-Za-z0-9])"),
    re.compile(
        r"(?<![A-Za-z0-9-])--(?i:(?:[a-z]{1,20}-){0,2}(?:password|passwd|pass|passphrase|api-?key|token|secret|secret-key))"
        rf"(?:=|[\"']?\s{{1,3}}|[\"'],\s{{0,3}})[\"']?{_MIXED}(?P<value>{_BARE})"
    ),
    re.compile(
        r"[?&;](?i:key|api[-_]?key|(?:access_|auth_)?token|sig|(?:x-amz-|x-goog-)?signature|x-amz-security-token"
        r"|password|secret)=(?P<value>[^&;\s\"'#<>]{8,})"
    ),
    # The password of a URL, also with characters that should have been escaped, unless a port follows the colon.
    re.compile(
        r"[A-Za-z][A-Za-z0-9+.-]{1,20}://(?:[^\s:/?#@\"'\[\]<>]*:([^\s/?#@\"'<>\[\]]{3,}(?:@[^\s/?#@\"'<>\[\]]{0,256}){0,8})"
        r"|[^\s:/?#@.\"'\[\]<>]*:(?!\d{1,5}[/?#]|(?i:port)\b|[$%{])([^\s\"'<>\[\]]{3,256}))"
        r"@(?=[^\s/?#@\"'<>\[\]:]+(?:[:/?#\s\"'<>\[\]),;]|$))"
    ),
)
_CREDENTIAL: Final = re.compile(r"(?<![A-Za-z0-9])(?i:bearer)\s+([A-Za-z0-9+/=_.~-]{16,})")
_COOKIE: Final = re.compile(
    r"(?<![A-Za-z0-9])(?i:set-cookie|cookie):\s{0,3}([A-Za-z0-9_.-]{1,64}=[^\s;\"'<>\\]{0,4096}(?:;\s?[^\s;\"'<>\\]{1,4096}){0,50})"
)
_ASSIGNED: Final = re.compile(
    r"""(?<![A-Za-z0-9])([A-Za-z0-9_.-]{0,40}(?i:key|secret|token|passw(?:or)?d|pwd|credential))["']?"""
    r"""\s{0,3}(?:=>|[:=])\s{0,3}["']?(?:(?i:bearer)\s+)?([A-Za-z0-9+/=_.~%-]{16,})"""
)
#: A member in text. Its value is looked at and not consumed: it may hold members itself, `"a":"{\"password\":..."`.
_MEMBER: Final = re.compile(
    r"""(?<=["'])([A-Za-z0-9_. -]{2,64})["']\s*:\s*(?=(["'])((?:(?!\2)[^\\\n]|\\.)*)(?:\2|\Z))"""
)
#: A header as a list of two, or as an object with its name.
_PAIR: Final = re.compile(
    r"""[\[(]\s{0,3}["']([A-Za-z][A-Za-z0-9_-]{2,63})["']\s{0,3},\s{0,3}(["'])((?:(?!\2)[^\\\n]|\\.){4,8192})\2\s{0,3}[\])]"""
)
_NAMED: Final = re.compile(
    r"""["'](?:name|key|header)["']\s{0,3}:\s{0,3}["']([A-Za-z0-9_. -]{2,64})["']\s{0,3},"""
    r"""\s{0,3}["']value["']\s{0,3}:\s{0,3}(["'])((?:(?!\2)[^\\\n]|\\.){4,8192})\2"""
)
_NUMBERED: Final = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z0-9_.-]{0,40}(?i:passw(?:or)?d|passphrase|pwd|passcode)"
    r"([\"']?)\s{0,3}(?:=>|:=|[:=])\s{0,3}([\"']?)(\d{4,64})(?![A-Za-z0-9_.-])"
)


def named(text: str) -> Iterator[Hit]:
    """Yield every secret that a name next to it reveals."""
    for match in _CREDENTIAL.finditer(text):
        if not _is_harmless(match[1]) and _LIKELY_VALUE.fullmatch(match[1]):
            yield _hit(match, 1, "bearer")
    for match in _COOKIE.finditer(text):
        if not _is_harmless(match[1]) and _LONG_COOKIE.search(match[1]):
            yield _hit(match, 1, "cookie")
    for pattern, is_one in ((_MEMBER, is_secret_value), (_PAIR, is_pair), (_NAMED, is_secret_value)):
        for match in pattern.finditer(text):
            if is_one(match[1], match[3]):
                yield _hit(match, 3, "secret")
    for match in _ASSIGNED.finditer(text):
        name, value = match[1], match[2]
        if _is_likely(_spelled(name), value) and not _is_harmless(value) and not _is_directory(name, value):
            yield _hit(match, 2, "secret")
    for match in _NUMBERED.finditer(text):  # as a number in JSON it must stay one
        yield _hit(match, 3, "digits" if match[1] and not match[2] else "secret")
    for pattern in _SURELY:
        for match in pattern.finditer(text):
            if not _is_computed(match[1], match["value"]):
                yield Hit(*match.span("value"), "secret", match["value"])
    for pattern in _FIXED:
        for match in pattern.finditer(text):
            value = match[match.lastindex or 0]
            if not _is_harmless(value) and not _is_directory("pwd", value):
                yield _hit(
                    match, match.lastindex or 0, "password" if "://" in match[0] and ":" in match[0][8:] else "secret"
                )


def _is_computed(name: str, value: str) -> bool:
    """Return whether a program reads the value elsewhere (`password=password_of(user)`), or it is a sentence."""
    said = _spelled(value)
    echoes = not any(map(str.isdigit, said)) and (_SURE_NAME.search(said) or said.startswith(_spelled(name)[-8:]))
    return (
        _is_harmless(value)
        or bool(echoes)
        or _ATTRIBUTE.fullmatch(value) is not None
        or _is_directory(name, value)
        or (" " in value and _ABOUT.search(value) is not None)
    )


def _hit(match: re.Match[str], group: int, vendor: str) -> Hit:
    return Hit(*match.span(group), vendor, match[group])
