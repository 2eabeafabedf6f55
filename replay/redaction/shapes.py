"""Find the secrets of a text: keys by shape, values by name, in strings of JSON, escapes and base64

A key has its vendor's own beginning, so no hash, id, number or word is taken for one. Each pattern looks at a place of
the text a bounded number of times. The beginnings also recognise a key that was cut. A sure name (`password`,
`api_key`) makes a secret of any value, a likely one (`token`, `key`) only of what looks like a key, because models and
users use such words for other things too.
"""

import base64
import html
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from ..sealed.texts import Path, Scalar, scalars, unquoted

__all__ = [
    "BEFORE",
    "CLOSERS",
    "PLACEHOLDER",
    "ROWS",
    "Hit",
    "Leaf",
    "find",
    "is_secret_number",
    "is_telling",
    "keys",
    "merged",
    "names_of",
    "search",
]

#: What redaction writes in place of a secret.
PLACEHOLDER: Final = re.compile(r"\[redacted-([a-z0-9]+)(?:-(\d+))?\]")


class Hit(NamedTuple):
    """A secret at `text[start:end]`, its vendor, and its text without escapes."""

    start: int
    end: int
    vendor: str
    secret: str


# -- shapes ----------------------------------------------------------------------------------------------------------

_MIXED_CASE: Final = r"(?=[a-z0-9_-]{0,200}[A-Z])(?=[A-Z0-9_-]{0,200}[a-z])(?=[A-Za-z_-]{0,200}[0-9])"
_DIGIT: Final = r"(?=[A-Za-z]*[0-9])"
_WORD: Final = "[A-Za-z0-9]"
_DASHED: Final = "[A-Za-z0-9_-]"
#: Where a run of such characters begins or ends, also inside the underscores of Markdown.
_BEGINS: Final = r"(?:(?<![_-])|(?<=(?<![A-Za-z0-9_-])_)|(?<=(?<![A-Za-z0-9_-])__))"
_ENDS: Final = r"(?!_{0,2}[A-Za-z0-9-])"
_PEM_HEADERS: Final = r"(?:\s{0,16}(?:\\[rn])?[A-Z][A-Za-z-]{1,20}: [^\n]{0,200}\n){0,4}"

#: By how keys go on, their vendors and how their keys begin (no regular expression group may be named).
_BEGUN: Final[Mapping[str, Mapping[str, str]]] = {
    rf"{_DASHED}{{16,}}": {
        "anthropic": r"sk-ant-(?:[a-z]{2,8}\d\d-)?", "openrouter": r"sk-or-(?:v\d-)?", "pypi": r"pypi-AgE",
        "openai": r"sk-(?:proj|svcacct|admin|None)-", "newrelic": r"NR(?:AK|II|JS|IQ|RA|SP)-",
    },
    rf"{_DASHED}{{20,}}": {
        "google": r"ya29\.|GOCSPX-", "github": r"github_pat_", "gitlab": r"gl(?:pat|dt|rt|ptt|cbt|ft|oas)-",
        "nvidia": r"nvapi-", "together": r"tgp_v1_", "tavily": r"tvly-(?:dev-|prod-)?", "pinecone": r"pcsk_",
        "supabase": r"sb_secret_|sb[ps]_", "vault": r"hv[sb]\.", "docker": r"dckr_pat_", "square": r"sq0[a-z]{3}-",
        "wandb": r"wandb_v1_", "buildkite": r"bk(?:ua|ct|pt|aj|at)_",
    },
    rf"{_DASHED}{{30,}}": {"google": r"AIza|1//0", "figma": r"figd_"},
    rf"{_WORD}{{20,}}": {
        "github": r"gh[pousr]_", "groq": r"gsk_", "perplexity": r"pplx-", "vercel": r"vc[kpi]_",
        "linear": r"lin_(?:api|oauth)_",
    },
    rf"{_WORD}{{30,}}": {"notion": r"ntn_", "netlify": r"nf[bcopu]_", "prefect": r"pn[bu]_", "runpod": r"rpa_"},
    r"[0-9a-fA-F]{32,}": {
        "digitalocean": r"do[opr]_v1_", "shopify": r"shp(?:at|ca|pa|ss)_", "pulumi": r"pul-", "rubygems": r"rubygems_",
        "e2b": r"(?:sk_)?e2b_",
    },
    r"[A-Za-z0-9+/_=.-]{20,}(?<!\.)": {
        "aws": r"bedrock-api-key-", "stripe": r"whsec_", "atlassian": r"ATATT3", "planetscale": r"pscale_[a-z]{2,5}_",
        "sentry": r"sntry[su]_", "1password": r"ops_eyJ", "fly": r"fo1_|fm[12][ar]?_",
    },
    r"[A-Za-z0-9%-]{10,}": {"slack": r"xox[abcdeoprs]-|xapp-\d-"},
}  # fmt: skip
#: Vendor, how its keys begin, and how they go on. Earlier rows win.
_TABLE: Final[tuple[tuple[str, str, str], ...]] = (
    *((vendor, begins, goes_on) for goes_on, some in _BEGUN.items() for vendor, begins in some.items()),
    ("langfuse", r"[sp]k-lf-", r"[0-9a-f-]{36}"),
    ("google", r"AQ\.", rf"{_DASHED}{{40,}}"),
    ("aws", r"A[KSB]IA|ACCA", r"[0-9A-Z]{16}(?![0-9A-Za-z])"),
    ("aws", r"ABSK", r"[A-Za-z0-9+/]{60,}={0,2}"),
    ("slack", r"hooks\.slack\.com/services/", r"[A-Za-z0-9/]{20,}"),
    ("stripe", r"[rs]k_(?:live|test)_", rf"{_WORD}{{10,}}"),
    ("langsmith", r"lsv2_(?:pt|sk)_", r"[0-9a-f]{20,}[0-9a-f_]*"),
    ("databricks", r"dapi(?=[0-9a-f])", r"[0-9a-f]{32}(?:-\d)?"),
    ("grafana", r"glsa_", r"[A-Za-z0-9]{32}_[0-9a-f]{8}"),
    ("postman", r"PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    ("age", r"AGE-SECRET-KEY-1", r"[0-9A-Z]{30,}"),
    ("hubspot", r"pat-(?:na|eu|ap)\d-", r"[0-9a-f]{8}-[0-9a-f-]{27}"),
    ("1password", r"A3-[A-Z0-9]{6}-", r"[A-Z0-9]{5,6}-?[A-Z0-9]{5}(?:-[A-Z0-9]{5}){3}"),
    ("brevo", r"x(?:key|smtp)sib-", r"[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    ("doppler", r"dp\.(?:pt|st|ct|sa|scim|audit)\.", r"(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    ("dynatrace", r"dt0[a-z]\d\d\.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    ("mapbox", r"[pst]k\.eyJ", rf"{_DASHED}{{20,}}\.{_DASHED}{{20,}}"),
    ("circleci", r"CCI(?:PAT|PRJ)_", rf"{_WORD}{{20,}}_[0-9a-f]{{40}}"),
    ("paseto", r"v[1-4]\.(?:local|public)\.", rf"{_DASHED}{{32,}}(?:\.{_DASHED}+)?"),
)
#: The same for beginnings that words and names in programs share: `hf_hub_download`, `npm_config_registry`.
_WORDY: Final[tuple[tuple[str, str, str], ...]] = (
    ("huggingface", r"hf_", rf"{_WORD}{{34,}}"),
    ("huggingface", r"api_org_", rf"{_WORD}{{20,}}"),
    ("xai", r"xai-", rf"{_WORD}{{20,}}"),
    ("replicate", r"r8_", rf"{_WORD}{{20,}}"),
    ("fireworks", r"fw_", rf"(?=[A-Za-z]*[0-9][A-Za-z0-9]){_WORD}{{20,}}"),
    ("cerebras", r"csk-", rf"{_WORD}{{20,}}"),
    ("elevenlabs", r"sk_", r"[0-9a-f]{40,}"),
    ("npm", r"npm_", rf"{_WORD}{{20,}}"),
    ("jina", r"jina_", rf"{_DASHED}{{40,}}"),
    # Many vendors write theirs as OpenAI does (DeepSeek, Moonshot, LiteLLM).
    ("openai", r"sk-", rf"{_MIXED_CASE}{_DASHED}{{20,}}"),
    ("openai", r"sk-(?:[a-z0-9]{1,12}-){0,3}", rf"{_DIGIT}{_WORD}{{20,}}{_DASHED}*"),
)
#: Vendor, what is in every text with such a key, and keys whose beginning does not distinguish them while they are
#: incomplete.
_WHOLE: Final[tuple[tuple[str, str, str], ...]] = (
    ("openai", "sess-", r"sess-(?![0-9a-f]{30,}(?![A-Za-z0-9]))[A-Za-z0-9]{30,}"),
    ("firecrawl", "fc-", r"fc-[0-9a-f]{32}"),
    ("notion", "secret_", rf"secret_(?=[A-Za-z]*[0-9]){_WORD}{{43}}(?![A-Za-z0-9])"),
    ("sendgrid", r"SG\.", rf"SG\.{_DASHED}{{16,}}\.{_DASHED}{{16,}}"),
    ("mailgun", "key-", r"key-[0-9a-f]{32}"),
    ("twilio", "SK", r"SK[0-9a-f]{32}"),
    ("telegram", ":AA", rf"\d{{8,10}}:AA{_DASHED}{{30,}}"),
    ("voyage", "pa-", rf"pa-(?=[a-z0-9_-]{{0,43}}[A-Z])(?=[A-Za-z_-]{{0,43}}[0-9]){_DASHED}{{43}}{_ENDS}"),
    ("azure", "JQQJ9", rf"{_WORD}{{52}}JQQJ9[9DH]{_WORD}[A-L]{_WORD}{{16}}[A-Za-z]{_WORD}{{7}}(?:{_WORD}{{2}}==)?"),
    ("azure", r"\dQ~", r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
    ("discord", r"\.[A-Za-z0-9_-]{6}\.", (rf"[MNO](?=[A-Za-z_-]{{0,26}}[0-9]){_DASHED}{{22,27}}\.{_DASHED}{{6}}\."
     rf"(?=[A-Za-z_-]{{0,37}}[0-9])(?=[a-z0-9_-]{{0,37}}[A-Z]){_DASHED}{{27,38}}{_ENDS}")),
    ("discord", "mfa", rf"mfa\.{_DASHED}{{80,}}"),
    ("discord", "webhooks/", rf"discord(?:app)?\.com/api/webhooks/\d{{15,20}}/{_DASHED}{{60,}}"),
    ("newrelic", "NRAL", r"[0-9a-z]{36}NRAL(?![0-9A-Za-z])"),
    ("airtable", r"pat\w{14}\.", rf"pat{_WORD}{{14}}\.[0-9a-f]{{64}}"),
    ("square", "EAAA", rf"EAAA(?=[A-Za-z_-]{{0,60}}[0-9]){_DASHED}{{60}}{_ENDS}"),
    ("terraform", "atlasv1", rf"{_WORD}{{14}}\.atlasv1\.[A-Za-z0-9_=-]{{60,}}"),
    ("aws", "Signature=", r"(?<=Signature=)[0-9a-f]{64}"),
    # A long run is scanned once: a token begins where no such run goes on.
    ("jwe", "eyJ", rf"{_BEGINS}eyJ{_DASHED}{{8,8192}}+\.{_DASHED}{{0,999}}+(?:\.{_DASHED}{{8,}}+){{3}}"),
    ("jwt", "eyJ", rf"{_BEGINS}eyJ{_DASHED}{{8,8192}}+\.eyJ{_DASHED}{{8,}}+(?:\.{_DASHED}*)?"),
    # With key material, since prose names these lines too.
    ("pem", "BEGIN", (r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
     rf"(?={_PEM_HEADERS}[^A-Za-z0-9+/=`.]{{0,64}}[A-Za-z0-9+/=]{{16}})"
     r"(?:(?:[^-]|-(?!----)){1,20000}-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
     r"|(?:\s*[A-Z][A-Za-z-]{1,20}: [^\n]{0,200}\n){0,4}[A-Za-z0-9+/=\s]{16,})")),
)  # fmt: skip
#: Every shape: vendor, beginning, rest.
ROWS: Final = (*_TABLE, *_WORDY, *((vendor, "", shape) for vendor, _, shape in _WHOLE))

#: No part of a word comes before a key, except an escape, a bot's path segment, or a terminal colour.
_COLOURS: Final = "|".join(
    rf"(?<=\x1b\[{codes}m)" for codes in (r"\d", r"\d\d", r"\d;\d\d", r"\d\d;\d", r"\d\d;\d;\d\d", r"\d\d;\d;\d\d\d")
)
BEFORE: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2}))"
_ANY: Final = "|".join(f"(?P<_{at}>(?:{begins})(?:{goes_on}))" for at, (_, begins, goes_on) in enumerate(ROWS))
_KEY: Final = re.compile(rf"(?:(?<![A-Za-z0-9])|(?<=m)(?:{_COLOURS})|(?<=/bot))(?:{_ANY})")
#: A key of this length directly after a letter is still a key, where base64 was decoded without knowing its format.
_GLUED: Final = re.compile(rf"(?=.{{30}})(?:{_ANY})", re.DOTALL)

#: The part that all keys of a kind share, such as the header of a token or the first line of a private key.
_BEGINNING: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----\s*|eyJ[A-Za-z0-9_-]*(?:\.(?:eyJ)?)?|\d{8,10}:AA|"
    + "|".join(begins for _, begins, _ in (*_TABLE, *_WORDY))
)
#: What closes the string, sentence or program in which a key was cut.
CLOSERS: Final = " \t\r\n\"'`\\)]}>,.;…"
_TELLING_CHARS: Final = 8
_OWN_CHARS: Final = 4

#: No secret is in a text without one of these, except in escapes or base64.
_WORTH_A_LOOK: Final = re.compile(
    "|".join(begins for _, begins, _ in (*_TABLE, *_WORDY, *_WHOLE))
    + r"|://|:(?:\d{4,5}|\*):[A-Za-z_*]|(?i:bearer|basic|key|secret|token|pass|pwd|_pat=|auth|credential|cookie|sig|code)"
)
#: Base64 as one word, as a segment of a path, and in lines.
_BASE64: Final = (
    re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,65536}={0,2}(?![A-Za-z0-9+/_=-])"),
    re.compile(r"(?<=/)[A-Za-z0-9+_-]{24,65536}={0,2}(?![A-Za-z0-9+_=-])"),
    re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{60,76}\r?\n[ \t]{0,16}){1,1000}[A-Za-z0-9+/]{1,76}={0,2}"),
)
_BASIC: Final = re.compile(r"(?<![A-Za-z0-9])(?i:basic)\s+([A-Za-z0-9+/_-]{8,}={0,2})")
#: A key is longer than this, and random bytes hardly ever hold such a run.
_READABLE: Final = re.compile(rb"[\t\r\n\x1b\x20-\x7e]{12,}")
_ESCAPE: Final = re.compile(
    r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|\\([^ux])|((?:%[0-9a-fA-F]{2})+)"
    r"|(&(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|amp|lt|gt|quot|apos);)"
)
_SIMPLE: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
#: Escapes inside escapes: JSON inside a string of JSON, or in a URL.
_LAYERS_MAX: Final = 2
#: JSON inside strings of JSON.
_JSON_LAYERS_MAX: Final = 4
_SCHEME: Final = re.compile(r"(?:bearer|basic|token)\s+", re.IGNORECASE)
_SAYS_NAME: Final = frozenset({"header", "key", "name"})

#: Results kept for short strings, which are mostly those of the frame before: below a megabyte.
_REPEATED_MAX, _REPEATED_CHARS_MAX = 2048, 64

#: Searches plain text, given the name of its member.
Leaf = Callable[[str, str], Iterable[Hit]]

# -- names, without case and punctuation -----------------------------------------------------------------------------

_SURE_NAME: Final = re.compile(
    r"(?:password|passwd|passphrase|secret|secretkey|secretaccesskey|clientsecret|apikey|apitoken|accesstoken"
    r"|refreshtoken|authtoken|codeverifier|bearertoken|sessiontoken|securitytoken|idtoken|privatekey|accountkey|subscriptionkey"
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
_FILE: Final = re.compile(r"(?=\S*/)\S*\.[A-Za-z0-9]{2,5}")
_DIRECTORY: Final = re.compile(r"(?:~?/|~$|[A-Za-z]:[\\/]|\.\.?(?:/|$)).*", re.DOTALL)
_PLAIN_WORD: Final = re.compile(r"[a-z]+")
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


def _is_secret_value(name: str, value: str) -> bool:
    """Return whether a member of this name has a secret as its value."""
    spelled = _spelled(name)
    if _is_harmless(value) or _is_directory(name, value):
        return False
    if _SURE_NAME.search(spelled) is None:
        short = _PASS_NAME.search(spelled) is not None and _SHORT_VALUE.fullmatch(value) is not None
        return short or _is_likely(spelled, value)
    if spelled.endswith(("cookie", "authorization")) and _PLAIN_WORD.fullmatch(value):
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


def _is_header(name: str) -> bool:
    """Return whether a header of this name holds a secret."""
    return len(name) <= _HEADER_CHARS and _HEADER.fullmatch(name) is not None


def _is_pair(name: str, value: str) -> bool:
    """Return whether two strings in a list are a header and its secret value, not two names."""
    return _is_header(name) and _HEADER_VALUE.fullmatch(value) is not None and _is_secret_value(name, value)


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
    re.compile(  # OAuth
        r"(?<![A-Za-z0-9_.-])(?i:code(?:_verifier)?)=(?=[A-Za-z._~%/-]{0,99}\d)(?=[\d._~%/-]{0,99}[A-Za-z])"
        r"(?P<value>[A-Za-z0-9._~%/-]{16,512}+)(?=[&\s\"'#\\]|\Z)"
    ),
    re.compile(  # .pgpass
        rf"(?m:^)[\w.*-]{{1,255}}:(?:\d{{4,5}}|\*):[A-Za-z_*][\w-]{{0,62}}:[A-Za-z_][\w-]{{0,62}}:"
        rf"{_MIXED}(?P<value>[^\s:\"'\\]{{6,256}}+)(?=[\s\"'\\]|\Z)"
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
#: A header as a list of two.
_PAIR: Final = re.compile(
    r"""[\[(]\s{0,3}["']([A-Za-z][A-Za-z0-9_-]{2,63})["']\s{0,3},\s{0,3}(["'])((?:(?!\2)[^\\\n]|\\.){4,8192})\2\s{0,3}[\])]"""
)
_NUMBERED: Final = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z0-9_.-]{0,40}(?i:passw(?:or)?d|passphrase|pwd|passcode)"
    r"([\"']?)\s{0,3}(?:=>|:=|[:=])\s{0,3}([\"']?)(\d{4,64})(?![A-Za-z0-9_.-])"
)


def _named(text: str) -> Iterator[Hit]:
    """Yield every secret that a name next to it reveals."""
    for match in _CREDENTIAL.finditer(text):
        if not _is_harmless(match[1]) and _LIKELY_VALUE.fullmatch(match[1]):
            yield _hit(match, 1, "bearer")
    for match in _COOKIE.finditer(text):
        if not _is_harmless(match[1]) and _LONG_COOKIE.search(match[1]):
            yield _hit(match, 1, "cookie")
    for pattern, is_one in ((_MEMBER, _is_secret_value), (_PAIR, _is_pair)):
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


# -- keys -------------------------------------------------------------------------------------------------------------


def keys(text: str, *, glued: bool = False) -> Iterator[Hit]:
    """Yield the keys of vendors; `glued` ones may follow a letter."""
    for match in (_GLUED if glued else _KEY).finditer(text):
        yield Hit(*match.span(), ROWS[int((match.lastgroup or "_0")[1:])][0], match[0])


def is_telling(begun: str) -> bool:
    """Return whether this beginning of a secret reveals it: more than its vendor's prefix, no word and no number."""
    if len(begun) < _TELLING_CHARS:
        return False
    if (beginning := _BEGINNING.match(begun)) is not None:
        return sum(map(str.isalnum, begun[beginning.end() :])) >= _OWN_CHARS
    return any(map(str.isdigit, begun)) and any(map(str.isalpha, begun))


# -- all secrets ------------------------------------------------------------------------------------------------------


def find(text: str, name: str = "") -> Sequence[Hit]:
    """Return the secrets of a text in order, without overlaps. `name` is the name of its member, if it has one."""
    return _repeated(text, name) if len(text) <= _REPEATED_CHARS_MAX else search(text, name, _leaf)


def search(text: str, name: str, leaf: Leaf, layers: int = _JSON_LAYERS_MAX) -> list[Hit]:
    """Search a text; JSON string by string, so that it stays JSON when hits are replaced."""
    if not layers or not _is_json(text):
        return merged([*leaf(text, name)])
    hits: list[Hit] = []
    strings: list[tuple[Scalar, str, Sequence[int]]] = []
    for scalar in scalars(text.encode("ascii", "replace")):  # a byte a character, so places are the text's own
        if scalar.sort != "other":
            end = scalar.end - (scalar.sort != "torn")
            strings.append((scalar, *unquoted(text[scalar.start + 1 : end], scalar.start + 1)))
        elif scalar.path and is_secret_number(str(scalar.path[-1]), text[scalar.start : scalar.end]):
            hits.append(Hit(scalar.start, scalar.end, "digits", text[scalar.start : scalar.end]))
    names = names_of([(scalar.path, said, scalar.sort == "name") for scalar, said, _ in strings])
    for (_, said, places), name_of_it in zip(strings, names, strict=True):
        found = search(said, name_of_it, leaf, layers - 1)
        hits += [hit._replace(start=places[hit.start], end=places[hit.end]) for hit in found]
    return merged(hits)


def names_of(strings: Sequence[tuple[Path, str, bool]]) -> list[str]:
    """Return the name of each string: its member's, or what a neighbour says (`["x-api-key", "..."]`).

    Each string is a path, its text, and whether it is the name of a member; names get an empty name.
    """
    neighbours: dict[Path, str] = {}
    for path, said, is_name in strings:
        last = path[-1] if path else ""
        if is_name:
            continue
        if last in _SAYS_NAME:
            neighbours.setdefault((*path[:-1], "value"), said)
        elif isinstance(last, int) and _is_header(said.lstrip("-")):  # or a flag of a command
            neighbours[(*path[:-1], last + 1)] = said.lstrip("-")
    names: list[str] = []
    for path, said, is_name in strings:
        name = neighbours.get(path, "")
        if not name or (isinstance(path[-1], int) and not _is_pair(name, said)):
            name = next((step for step in reversed(path) if isinstance(step, str) and step != "value"), "")
        names.append("" if is_name else name)
    return names


def merged(hits: Iterable[Hit]) -> list[Hit]:
    """Drop hits inside others; of two that overlap, the first reaches to the end of both."""
    kept: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if kept and hit.start < kept[-1].end:
            if hit.end > kept[-1].end:
                kept[-1] = kept[-1]._replace(end=hit.end)
        elif hit.start < hit.end:
            kept.append(hit)
    return kept


def _is_json(text: str) -> bool:
    """Return whether a text is an object or an array with strings in it, or the beginning of one."""
    if text.lstrip()[:1] not in ("{", "[") or '"' not in text:
        return False
    try:
        json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) or error.msg.startswith("Unterminated string")
    except (RecursionError, ValueError):
        return False
    return True


@lru_cache(_REPEATED_MAX)
def _repeated(text: str, name: str) -> Sequence[Hit]:
    return search(text, name, _leaf)


# -- plain text -------------------------------------------------------------------------------------------------------


def _leaf(text: str, name: str) -> Iterable[Hit]:
    hits = _hits_in_escapes(text)
    if name and _is_secret_value(name, text):
        # The whole value goes, even if only a part looks like a key; the word before a credential may stay.
        scheme = _SCHEME.match(text) if hits else None
        start = scheme.end() if scheme else 0
        if not (len(hits) == 1 and hits[0].start <= start and hits[0].end == len(text)):
            return [Hit(start, len(text), hits[0].vendor if hits else "secret", text[start:])]
    return hits


def _is_quoted(text: str, hit: Hit) -> bool:
    """Return whether a hit is all of the text between two quotes."""
    return hit.start > 0 and text[hit.start - 1] in "\"'" and text[hit.end : hit.end + 1] == text[hit.start - 1]


def _plain(text: str) -> Iterator[Hit]:
    if _WORTH_A_LOOK.search(text):
        yield from keys(text)
        yield from _named(text)
        for match in _BASIC.finditer(text):
            if ":" in _texts_in(match[1], whole=True):
                yield Hit(*match.span(1), "basic", match[1])
    for pattern in _BASE64:
        for match in pattern.finditer(text):
            inner = _texts_in("".join(match[0].split()))
            if _WORTH_A_LOOK.search(inner):
                for hit in (*keys(inner), *keys(inner, glued=True), *_named(inner)):
                    yield Hit(*match.span(), hit.vendor, hit.secret)
                    break


def _texts_in(encoded: str, *, whole: bool = False) -> str:
    """Return the text in base64, or its readable runs, as in an image; with `whole` only if it is all text."""
    padded = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(padded + "=" * (-len(padded) % 4))
    except ValueError:
        return ""
    try:
        text = data.decode()
        if "".join(text.split()).isprintable():
            return text
    except UnicodeDecodeError:
        pass
    return "" if whole else "\n".join(run.decode("latin-1") for run in _READABLE.findall(data))


def _hits_in_escapes(text: str) -> list[Hit]:
    """Return the hits of a text and of the text without escapes of JSON, URLs, HTML and programs, layer by layer."""
    hits = merged(_plain(text))
    # Decoded twice, the escaped backslash before the last quote of a hit in quotes escapes the quote.
    closed = {hit.start for hit in hits if _is_quoted(text, hit)}
    layers = [text]
    while len(layers) <= _LAYERS_MAX and (plain := _ESCAPE.sub(_unescape, layers[-1])) != layers[-1]:
        layers.append(plain)
        if not (inner := merged(_plain(plain))):
            continue
        places: Sequence[int] = range(len(text) + 1)
        for outer in layers[:-1]:
            places = [places[place] for place in _places(outer)]
        known, hits = hits, [*hits]
        for hit in inner:
            start, end = places[hit.start], places[hit.end]
            at = bisect_right(known, start, key=lambda each: each.start)
            around = known[at - 1] if at and start < known[at - 1].end else None
            if around is None or (around.end < end and around.start not in closed):
                hits.append(hit._replace(start=start, end=end))
                closed |= {start} if _is_quoted(plain, hit) else set()
        hits = merged(hits)
    return hits


def _unescape(match: re.Match[str]) -> str:
    if code := match[1] or match[2]:
        return chr(int(code, 16))
    if match[3]:
        return _SIMPLE.get(match[3], match[3])
    return unquote(match[4], "latin-1") if match[4] else html.unescape(match[5])


def _places(text: str) -> list[int]:
    """Return where each character of the text without one layer of escapes begins, and the end."""
    places: list[int] = []
    at = 0
    for match in _ESCAPE.finditer(text):
        places += range(at, match.start())
        inner = _unescape(match)
        step = (match.end() - match.start()) // max(1, len(inner))  # a run of %xx holds a character in each
        places += [match.start() + step * number for number in range(len(inner))]
        at = match.end()
    return [*places, *range(at, len(text) + 1)]
