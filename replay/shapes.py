"""What credentials look like: the key shapes of vendors, and values under names that say what they are; found in text

A hash, an id, a number or a word is never one: each shape has a vendor's own beginning or a name before it.
"""

import base64
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import unquote

__all__ = ["PLACEHOLDER", "SHAPES", "Hit", "find", "is_secret_value", "merged"]

#: What we put there ourselves.
PLACEHOLDER: Final = re.compile(r"\[redacted-([a-z0-9]+)(?:-(\d+))?\]")
#: What others, or the proxy, have put there.
_MASK: Final = re.compile(
    r"[*•xX.]{3,}|\$\{?\w+\}?|<[^<>]*>|\{\{[^{}]*\}\}|.*(?:REDACTED|redacted|(?i:your)[-_ ]).*"
    r"|(?:os\.(?:environ|getenv)|process\.env|import\.meta\.env|self\.|settings\.|config\.|\$\{).*"
)

#: By vendor. Nothing that is part of a longer word.
SHAPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "anthropic": r"sk-ant-[A-Za-z0-9_-]{16,}",
        "openrouter": r"sk-or-[A-Za-z0-9_-]{16,}",
        "langfuse": r"[sp]k-lf-[0-9a-f-]{36}",
        # OpenAI's own, and of the many who write theirs like it (DeepSeek, Moonshot, LiteLLM, ...).
        "openai": r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{16,}"
        r"|sess-(?![0-9a-f]{30,}(?![A-Za-z0-9]))[A-Za-z0-9]{30,}"
        r"|sk-(?=[a-z0-9_-]*[A-Z])(?=[A-Z0-9_-]*[a-z])(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}"
        r"|sk-(?:[a-z0-9]{1,12}-){0,3}(?=[A-Za-z]*[0-9])[A-Za-z0-9]{20,}[A-Za-z0-9_-]*",
        "google": r"AIza[0-9A-Za-z_-]{30,}|ya29\.[0-9A-Za-z_-]{20,}|GOCSPX-[0-9A-Za-z_-]{20,}|AQ\.[0-9A-Za-z_-]{40,}"
        r"|1//0[0-9A-Za-z_-]{30,}",
        "aws": r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Za-z])|ABSK[A-Za-z0-9+/]{60,}={0,2}"
        r"|bedrock-api-key-[A-Za-z0-9+/]{20,}={0,2}",
        "github": r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
        "gitlab": r"gl(?:pat|dt|rt|ptt|cbt|ft|oas)-[A-Za-z0-9_-]{20,}",
        "slack": r"xox[abcdeoprs]-[A-Za-z0-9%-]{10,}|xapp-\d-[A-Za-z0-9-]{10,}"
        r"|hooks\.slack\.com/services/[A-Za-z0-9/]{20,}",
        "stripe": r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/]{20,}={0,2}",
        "huggingface": r"hf_[A-Za-z0-9]{34,}|api_org_[A-Za-z0-9]{20,}",
        "groq": r"gsk_[A-Za-z0-9]{20,}",
        "xai": r"xai-[A-Za-z0-9]{20,}",
        "replicate": r"r8_[A-Za-z0-9]{20,}",
        "perplexity": r"pplx-[A-Za-z0-9]{20,}",
        "nvidia": r"nvapi-[A-Za-z0-9_-]{20,}",
        "fireworks": r"fw_(?=[A-Za-z]*[0-9][A-Za-z0-9])[A-Za-z0-9]{20,}",
        "cerebras": r"csk-[A-Za-z0-9]{20,}",
        "together": r"tgp_v1_[A-Za-z0-9_-]{20,}",
        "tavily": r"tvly-[A-Za-z0-9-]{20,}",
        "firecrawl": r"fc-[0-9a-f]{32}",
        "elevenlabs": r"sk_[0-9a-f]{40,}",
        "langsmith": r"lsv2_(?:pt|sk)_[0-9a-f]{20,}[0-9a-f_]*",
        "pinecone": r"pcsk_[A-Za-z0-9_]{20,}",
        "npm": r"npm_[A-Za-z0-9]{20,}",
        "pypi": r"pypi-AgE[A-Za-z0-9_-]{16,}",
        "sendgrid": r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        "mailgun": r"key-[0-9a-f]{32}",
        "twilio": r"SK[0-9a-f]{32}",
        "telegram": r"\d{8,10}:AA[A-Za-z0-9_-]{30,}",
        "databricks": r"dapi[0-9a-f]{32}(?:-\d)?",
        "digitalocean": r"do[opr]_v1_[0-9a-f]{64}",
        "shopify": r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
        "atlassian": r"ATATT3[A-Za-z0-9_=-]{20,}",
        "supabase": r"sb[ps]_[A-Za-z0-9_]{20,}|sb_secret_[A-Za-z0-9_-]{20,}",
        "vercel": r"vc[kpi]_[A-Za-z0-9]{20,}",
        "linear": r"lin_(?:api|oauth)_[A-Za-z0-9]{20,}",
        "notion": r"ntn_[A-Za-z0-9]{30,}",
        "vault": r"hv[sb]\.[A-Za-z0-9_-]{20,}",
        "grafana": r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}",
        "docker": r"dckr_pat_[A-Za-z0-9_-]{20,}",
        "figma": r"figd_[A-Za-z0-9_-]{30,}",
        "postman": r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}",
        "jina": r"jina_[A-Za-z0-9_-]{40,}",
        "voyage": r"pa-(?=[a-z0-9_-]*[A-Z])(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])",
        "age": r"AGE-SECRET-KEY-1[0-9A-Z]{30,}",
        "jwt": r"eyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
        "pem": r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]|-(?!----)){1,20000}-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
        r"|(?:\s*[A-Z][A-Za-z-]{1,20}: [^\n]{0,200}\n){0,4}[A-Za-z0-9+/=\s]{16,})",
    }
)

#: Nothing that is part of a word comes before, but what names a bot in a path, and what sets a colour.
_COLOURS: Final = "|".join(
    rf"(?<=\x1b\[{codes}m)" for codes in (r"\d", r"\d\d", r"\d;\d\d", r"\d\d;\d", r"\d\d;\d;\d\d", r"\d\d;\d;\d\d\d")
)
_SHAPE: Final = re.compile(
    rf"(?:(?<![A-Za-z0-9])|(?<=m)(?:{_COLOURS})|(?<=/bot))(?:"
    + "|".join(f"(?P<{vendor}>{shape})" for vendor, shape in SHAPES.items())
    + ")"
)
#: Nothing of the above, or of what follows, is in a text without one of these; escapes are looked into apart.
_WORTH_A_LOOK: Final = re.compile(
    r"sk-|[sr]k_|pk-|sess-|AIza|ya29|GOCSPX|AQ\.|A[KSBC][IC]A|ABSK|bedrock-api|gh[pousr]_|_pat_|gl[a-z]{2,4}-|xox|xapp|hooks\."
    r"|whsec|hf_|api_org|xai-|r8_|pplx|nvapi|fw_|tgp_|tvly|fc-|lsv2|npm_|pypi-|SG\.|key-|SK|:AA|dapi|do[opr]_|shp|ATATT"
    r"|sb_secret|hv[sb]\.|glsa_|dckr_|1//0|figd_|PMAK-|jina_|pa-|sb[ps]_|vc[kpi]_|lin_|ntn_|AGE-|eyJ|BEGIN|://|(?i:bearer|basic|key|secret|token|passw|pwd|passphrase|auth|credential|cookie|sig)"
)
#: What may be base64 of something with a key in it.
_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,65536}={0,2}(?![A-Za-z0-9+/_=-])")
#: ... in a path, and in lines.
_SEGMENT: Final = re.compile(r"(?<=/)[A-Za-z0-9+_-]{24,65536}={0,2}(?![A-Za-z0-9+_=-])")
_WRAPPED: Final = re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{60,76}\r?\n){1,1000}[A-Za-z0-9+/]{1,76}={0,2}")

# -- what has a name --------------------------------------------------------------------------------------------------

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
#: Tokens that open nothing.
_PAGE_NAME: Final = re.compile(r"(?:page|next|continuation|cursor|sync)token$")
#: No secret under any name.
_NO_SECRET: Final = frozenset(
    {"string", "str", "number", "integer", "boolean", "object", "array", "null", "none", "true", "false", "bearer",
     "basic", "required", "optional", "password", "secret", "token", "test", "type", "text", "auto", "include", "omit",
     "same-origin", "query", "header", "headers", "granted", "denied", "path", "body"}
)  # fmt: skip
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_FILE: Final = re.compile(r"[^\s]*/[^\s]*\.[A-Za-z0-9]{2,5}")
_WORD: Final = re.compile(r"[a-z]+")
#: Of words: a passphrase has none of these, what somebody says about one has.
_PHRASE: Final = re.compile(
    r"(?!.*\b(?:an?|and|are|be|for|in|is|must|not|of|or|the|this|to|user|with|your|password)\b)"
    r"[a-z0-9]+(?: [a-z0-9]+){2,7}"
)
_LIKELY_VALUE: Final = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9+/=_.~:-]{20,}")

_MEMBER: Final = re.compile(r"""["']([A-Za-z0-9_. -]{2,64})["']\s*:\s*(["'])((?:(?!\2)[^\\\n]|\\.)*)(?:\2|\Z)""")
_ASSIGNED: Final = re.compile(
    r"""(?<![A-Za-z0-9])([A-Za-z0-9_.-]{0,40}(?i:key|secret|token|passw(?:or)?d|pwd|credential))["']?"""
    r"""\s{0,3}(?:=>|[:=])\s{0,3}["']?(?:(?i:bearer)\s+)?([A-Za-z0-9+/=_.~%-]{16,})"""
)
_PARAMETER: Final = re.compile(
    r"[?&;](?i:key|api[-_]?key|(?:access_|auth_)?token|sig|(?:x-amz-|x-goog-)?signature|x-amz-security-token|password|secret)"
    r"=([^&;\s\"'#<>]{8,})"
)
#: Names that cannot be mistaken, before any value at all: as in a shell, a form or a program's text.
_SURE: Final = (
    r"[A-Za-z0-9_.-]{0,40}?(?i:passw(?:or)?d|passphrase|api[-_]?key|client[-_]?secret|secret[-_]?key"
    r"|(?:access|refresh|auth|api|session)[-_]?token|secret)"
)
_VALUE: Final = r"[^\s\"'`\\&;,<>(){}\[\]|]{6,512}"
_SURELY: Final = (
    # DB_PASSWORD=any of a shell
    re.compile(rf"(?<![A-Za-z0-9_])(?=[A-Z0-9_]+=)({_SURE})=(?P<value>{_VALUE})(?![(\[])"),
    # a form's or a query's
    re.compile(rf"[?&;]({_SURE})=(?P<value>[^&;\s\"'#<>\\]{{6,512}})"),
    re.compile(rf"(?<![A-Za-z0-9_.-])({_SURE})=(?P<value>[^&;\s\"'#<>\\]{{6,512}})(?=&\w+=)"),
    # any behind a name, in quotes
    re.compile(rf"(?<![A-Za-z0-9_.-])({_SURE})\s{{0,3}}(?:=>|:=|[:=])\s{{0,3}}(?P<q>[\"'`])(?P<value>{_VALUE})(?P=q)"),
    # and without, where it is no word and no name of a variable
    re.compile(
        rf"(?<![A-Za-z0-9_.-])({_SURE})(?:=|:\s{{1,3}})(?=[^\s\d]{{0,64}}\d)(?=[^\sA-Za-z]{{0,64}}[A-Za-z])"
        rf"(?P<value>{_VALUE})(?![(\[])"
    ),
    re.compile(rf'(?i:name)="({_SURE})"\r?\n(?:[^\r\n]{{1,200}}\r?\n){{0,3}}\r?\n(?P<value>[^\r\n]{{6,2000}})'),
)
_COOKIE: Final = re.compile(
    r"(?<![A-Za-z0-9])(?i:set-cookie|cookie):\s{0,3}([A-Za-z0-9_.-]{1,64}=[^\s;\"'<>\\]{6,4096}(?:;\s?[^\s;\"'<>\\]{1,4096}){0,50})"
)
_CREDENTIAL: Final = re.compile(r"(?<![A-Za-z0-9])(?i:bearer)\s+([A-Za-z0-9+/=_.~-]{16,})")
_BASIC: Final = re.compile(r"(?<![A-Za-z0-9])(?i:basic)\s+([A-Za-z0-9+/_-]{8,}={0,2})")
_IN_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/?#@\"'\[\]<>]*:([^\s/?#@\"'<>\[\]]{3,})@[^\s/]")


class Hit(NamedTuple):
    """`text[start:end]`, whose it is, and what it says once escapes are taken out."""

    start: int
    end: int
    vendor: str
    secret: str


def _is_secret_name(name: str) -> bool:
    """Whether what stands under it is a secret."""
    return _SECRET_NAME.search(_spelled(name)) is not None


def is_secret_value(name: str, value: str) -> bool:
    """Whether a member of this name has a secret for its value."""
    if _harmless(value):
        return False
    if _is_secret_name(name):
        if _WORD.fullmatch(value) and _spelled(name).endswith(("cookie", "authorization")):
            return False
        if "pass" in name.lower() and _PHRASE.fullmatch(value):
            return True
        scheme = value.partition(" ")[0].lower()
        return scheme in ("bearer", "basic", "token") or (len(value) > 3 and not any(map(str.isspace, value.strip())))
    return _is_likely(name, value)


def _is_likely(name: str, value: str) -> bool:
    spelled = _spelled(name)
    if _PAGE_NAME.search(spelled) or (_LIKELY_NAME.search(spelled) is None and not _is_secret_name(name)):
        return False
    if _UUID.fullmatch(value) or _FILE.fullmatch(value) or (_SHA256.fullmatch(value) and spelled != "token"):
        return _is_secret_name(name)
    return _LIKELY_VALUE.fullmatch(value) is not None


def _spelled(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


# -- in text ----------------------------------------------------------------------------------------------------------


def find(text: str) -> list[Hit]:
    """Every secret of a text, in order, none inside another: as it stands, and behind escapes of JSON or of a URL."""
    hits = list(_plain(text))
    for unescaped in _UNESCAPED:
        decoded = unescaped(text)
        if decoded is not None:
            hits += _mapped(decoded, hits)
    return merged(hits)


def merged(hits: Sequence[Hit]) -> list[Hit]:
    """Without those inside others; where two overlap, the first reaches as far as both."""
    kept: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if kept and hit.start < kept[-1].end:
            if hit.end > kept[-1].end:
                kept[-1] = kept[-1]._replace(end=hit.end)
        elif hit.start < hit.end:
            kept.append(hit)
    return kept


def _plain(text: str) -> Iterator[Hit]:
    if _WORTH_A_LOOK.search(text):
        for match in _SHAPE.finditer(text):
            yield _hit(match, 0, match.lastgroup or "key")
        for pattern, vendor in (
            (_CREDENTIAL, "bearer"),
            (_IN_URL, "password"),
            (_PARAMETER, "secret"),
            (_COOKIE, "cookie"),
        ):
            for match in pattern.finditer(text):
                if not _harmless(match[1]) and (vendor != "bearer" or _LIKELY_VALUE.fullmatch(match[1])):
                    yield _hit(match, 1, vendor)
        for match in _BASIC.finditer(text):
            if ":" in (_text_of(match[1]) or ""):
                yield _hit(match, 1, "basic")
        for match in _MEMBER.finditer(text):
            if is_secret_value(match[1], match[3]):
                yield _hit(match, 3, "secret")
        for match in _ASSIGNED.finditer(text):
            if _is_likely(match[1], match[2]) and not _harmless(match[2]):
                yield _hit(match, 2, "secret")
        for pattern in _SURELY:
            for match in pattern.finditer(text):
                if _is_surely(match[1], match["value"]):
                    yield Hit(*match.span("value"), "secret", match["value"])
    for pattern in (_BASE64, _SEGMENT, _WRAPPED):
        for match in pattern.finditer(text):
            inner = _text_of("".join(match[0].split()))
            if inner is not None and (inside := next(_SHAPE.finditer(inner), None)) is not None:
                yield Hit(*match.span(), inside.lastgroup or "key", inside[0])


def _is_surely(name: str, value: str) -> bool:
    """Not where the value names what the name does: `password=password_of(user)`."""
    said = _spelled(value)
    named = not any(map(str.isdigit, said)) and (_SECRET_NAME.search(said) or said.startswith(_spelled(name)[-8:]))
    return not _harmless(value) and not named


def _hit(match: re.Match[str], group: int, vendor: str) -> Hit:
    return Hit(*match.span(group), vendor, match[group])


def _harmless(value: str) -> bool:
    return _MASK.fullmatch(value) is not None or PLACEHOLDER.search(value) is not None or value.lower() in _NO_SECRET


def _text_of(encoded: str) -> str | None:
    """What base64 stands for, if it is text."""
    padded = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(padded + "=" * (-len(padded) % 4))
        text = data.decode()
    except ValueError:
        return None
    return text if "".join(text.split()).isprintable() else None


# -- behind escapes ---------------------------------------------------------------------------------------------------


class _Decoded(NamedTuple):
    text: str
    #: Where each character began, and the end.
    places: Sequence[int]


_JSON_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\([^u])")
_URL_ESCAPE: Final = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_SIMPLE: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def _json_text(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _SIMPLE.get(match[2], match[2])


def _url_text(match: re.Match[str]) -> str:
    return unquote(match[0], "latin-1")


def _json_once(text: str) -> _Decoded | None:
    return _worth_it(text, ((_JSON_ESCAPE, _json_text),)) if "\\" in text else None


def _json_twice(text: str) -> _Decoded | None:
    return _worth_it(text, ((_JSON_ESCAPE, _json_text),) * 2) if "\\\\" in text else None


def _url(text: str) -> _Decoded | None:
    return _worth_it(text, ((_URL_ESCAPE, _url_text),)) if "%" in text else None


_UNESCAPED: Final = (_json_once, _json_twice, _url)
_Steps = Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]]


def _worth_it(text: str, steps: _Steps) -> _Decoded | None:
    """Places are only made where something is found."""
    plain = text
    for pattern, said in steps:
        plain = pattern.sub(said, plain)
    if plain == text or not any(True for _ in _plain(plain)):
        return None
    decoded = _Decoded(text, range(len(text) + 1))
    for pattern, said in steps:
        further = _decoded(decoded.text, pattern, said)
        decoded = _Decoded(further.text, [decoded.places[place] for place in further.places])
    return decoded


def _decoded(text: str, pattern: re.Pattern[str], said: Callable[[re.Match[str]], str]) -> _Decoded:
    parts: list[str] = []
    places: list[int] = []
    at = 0
    for match in pattern.finditer(text):
        places += range(at, match.start())
        parts.append(text[at : match.start()])
        inner = said(match)
        # A run of %xx is cut evenly: each stands for one character.
        step = (match.end() - match.start()) // max(1, len(inner))
        places += [match.start() + step * number for number in range(len(inner))]
        parts.append(inner)
        at = match.end()
    places += range(at, len(text) + 1)
    return _Decoded("".join([*parts, text[at:]]), places)


def _mapped(decoded: _Decoded, known: Sequence[Hit]) -> Iterator[Hit]:
    """Hits of the decoded text where they stand; not of what was found without decoding it."""
    starts, reach = _reaches(known)
    for hit in _plain(decoded.text):
        start, end = decoded.places[hit.start], decoded.places[hit.end]
        before = bisect_right(starts, start)
        if not before or reach[before - 1] < end:
            yield hit._replace(start=start, end=end)


def _reaches(hits: Sequence[Hit]) -> tuple[Sequence[int], Sequence[int]]:
    """Where they start, in order, and how far it is covered from any start up to there."""
    ordered = sorted(hits, key=lambda hit: hit.start)
    return [hit.start for hit in ordered], [*accumulate((hit.end for hit in ordered), max)]
