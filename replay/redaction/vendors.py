"""The key shapes of vendors: a hash, an id, a number or a word is never one, for each has a beginning of its own

Every pattern looks at a place of the text a bounded number of times, whatever the text is.
"""

import re
import string
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["PLACEHOLDER", "SHAPES", "Hit", "glued", "keys"]

#: What we put there ourselves.
PLACEHOLDER: Final = re.compile(r"\[redacted-([a-z0-9]+)(?:-(\d+))?\]")

#: By vendor. Nothing that is part of a longer word.
SHAPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "anthropic": r"sk-ant-[A-Za-z0-9_-]{16,}",
        "openrouter": r"sk-or-[A-Za-z0-9_-]{16,}",
        "langfuse": r"[sp]k-lf-[0-9a-f-]{36}",
        # OpenAI's own, and of the many who write theirs like it (DeepSeek, Moonshot, LiteLLM, ...).
        "openai": r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{16,}"
        r"|sess-(?![0-9a-f]{30,}(?![A-Za-z0-9]))[A-Za-z0-9]{30,}"
        r"|sk-(?=[a-z0-9_-]{0,200}[A-Z])(?=[A-Z0-9_-]{0,200}[a-z])(?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{20,}"
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
        "voyage": r"pa-(?=[a-z0-9_-]{0,43}[A-Z])(?=[A-Za-z_-]{0,43}[0-9])[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])",
        "azure": r"[A-Za-z0-9]{52}JQQJ9[9DH][A-Za-z0-9][A-L][A-Za-z0-9]{16}[A-Za-z][A-Za-z0-9]{7}(?:[A-Za-z0-9]{2}==)?"
        r"|[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}",
        # The number of a bot, a time, and what signs both.
        "discord": r"[MNO](?=[A-Za-z_-]{0,26}[0-9])[A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}"
        r"\.(?=[A-Za-z_-]{0,37}[0-9])(?=[a-z0-9_-]{0,37}[A-Z])[A-Za-z0-9_-]{27,38}(?![A-Za-z0-9_-])"
        r"|mfa\.[A-Za-z0-9_-]{80,}|discord(?:app)?\.com/api/webhooks/\d{15,20}/[A-Za-z0-9_-]{60,}",
        "age": r"AGE-SECRET-KEY-1[0-9A-Z]{30,}",
        "pem": r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
        # Behind which the key stands: who only names the lines goes on with words.
        r"(?=(?:\s{0,16}(?:\\[rn])?[A-Z][A-Za-z-]{1,20}: [^\n]{0,200}\n){0,4}[^A-Za-z0-9+/=`.]{0,64}[A-Za-z0-9+/=]{16})"
        r"(?:(?:[^-]|-(?!----)){1,20000}-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
        r"|(?:\s*[A-Z][A-Za-z-]{1,20}: [^\n]{0,200}\n){0,4}[A-Za-z0-9+/=\s]{16,})",
    }
)

#: Nothing that is part of a word comes before, but what names a bot in a path, and what sets a colour.
_COLOURS: Final = "|".join(
    rf"(?<=\x1b\[{codes}m)" for codes in (r"\d", r"\d\d", r"\d;\d\d", r"\d\d;\d", r"\d\d;\d;\d\d", r"\d\d;\d;\d\d\d")
)
_BEFORE: Final = rf"(?:(?<![A-Za-z0-9])|(?<=m)(?:{_COLOURS})|(?<=/bot))"
_ANY: Final = "|".join(f"(?P<{vendor}>{shape})" for vendor, shape in SHAPES.items())
_SHAPE: Final = re.compile(rf"{_BEFORE}(?:{_ANY})")
_GLUED: Final = re.compile(_ANY)
#: So long a key that stands right behind a letter is no part of a word.
_GLUED_CHARS: Final = 30
#: The second part of a token, the first, and the third: a pattern of all would look at long runs again and again.
_SECOND: Final = re.compile(r"\.eyJ[A-Za-z0-9_-]{8,}")
_FIRST: Final = re.compile(rf"{_BEFORE}eyJ[A-Za-z0-9_-]{{8,}}")
_THIRD: Final = re.compile(r"(?:\.[A-Za-z0-9_-]*)?")
_OF_RUN: Final = frozenset(string.ascii_letters + string.digits + "_-")


class Hit(NamedTuple):
    """`text[start:end]`, whose it is, and what it says once escapes are taken out."""

    start: int
    end: int
    vendor: str
    secret: str


def keys(text: str) -> Iterator[Hit]:
    """Those of vendors, and tokens that are JSON in three parts."""
    yield from _tokens(text)
    for match in _SHAPE.finditer(text):
        yield Hit(*match.span(), match.lastgroup or "key", match[0])


def glued(text: str) -> Iterator[Hit]:
    """The same, where letters stand right before them: for what was encoded, where nobody knows what did."""
    for match in _GLUED.finditer(text):
        if match.end() - match.start() >= _GLUED_CHARS:
            yield Hit(*match.span(), match.lastgroup or "key", match[0])


def _tokens(text: str) -> Iterator[Hit]:
    floor = 0
    for match in _SECOND.finditer(text):
        start = match.start()
        while start > floor and text[start - 1] in _OF_RUN:
            start -= 1
        floor = match.start() + 1
        if (first := _FIRST.search(text, start, match.start())) is not None and first.end() == match.start():
            third = _THIRD.match(text, match.end())
            end = match.end() if third is None else third.end()
            yield Hit(first.start(), end, "jwt", text[first.start() : end])
