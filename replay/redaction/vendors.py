"""The one table of key shapes: a key has its vendor's own beginning, so no hash, id, number or word is taken for one

Each pattern looks at a place of the text a bounded number of times. The beginnings also recognise a key that was cut.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["BEFORE", "CLOSERS", "PLACEHOLDER", "TABLE", "Hit", "is_telling", "keys"]

#: What redaction writes in place of a secret.
PLACEHOLDER: Final = re.compile(r"\[redacted-([a-z0-9]+)(?:-(\d+))?\]")

_MIXED_CASE: Final = r"(?=[a-z0-9_-]{0,200}[A-Z])(?=[A-Z0-9_-]{0,200}[a-z])(?=[A-Za-z_-]{0,200}[0-9])"
_DIGIT: Final = r"(?=[A-Za-z]*[0-9])"
_WORD: Final = "[A-Za-z0-9]"
_DASHED: Final = "[A-Za-z0-9_-]"
_PEM_HEADERS: Final = r"(?:\s{0,16}(?:\\[rn])?[A-Z][A-Za-z-]{1,20}: [^\n]{0,200}\n){0,4}"

#: Vendor, how its keys begin (no regular expression group may be named), and how they go on. Earlier rows win.
TABLE: Final[tuple[tuple[str, str, str], ...]] = (
    ("anthropic", r"sk-ant-(?:[a-z]{2,8}\d\d-)?", rf"{_DASHED}{{16,}}"),
    ("openrouter", r"sk-or-(?:v\d-)?", rf"{_DASHED}{{16,}}"),
    ("langfuse", r"[sp]k-lf-", r"[0-9a-f-]{36}"),
    ("openai", r"sk-(?:proj|svcacct|admin|None)-", rf"{_DASHED}{{16,}}"),
    ("google", r"AIza", rf"{_DASHED}{{30,}}"),
    ("google", r"ya29\.|GOCSPX-", rf"{_DASHED}{{20,}}"),
    ("google", r"AQ\.", rf"{_DASHED}{{40,}}"),
    ("google", r"1//0", rf"{_DASHED}{{30,}}"),
    ("aws", r"A[KSB]IA|ACCA", r"[0-9A-Z]{16}(?![0-9A-Za-z])"),
    ("aws", r"ABSK", r"[A-Za-z0-9+/]{60,}={0,2}"),
    ("aws", r"bedrock-api-key-", r"[A-Za-z0-9+/]{20,}={0,2}"),
    ("github", r"gh[pousr]_", rf"{_WORD}{{20,}}"),
    ("github", r"github_pat_", r"\w{20,}"),
    ("gitlab", r"gl(?:pat|dt|rt|ptt|cbt|ft|oas)-", rf"{_DASHED}{{20,}}"),
    ("slack", r"xox[abcdeoprs]-", r"[A-Za-z0-9%-]{10,}"),
    ("slack", r"xapp-\d-", r"[A-Za-z0-9-]{10,}"),
    ("slack", r"hooks\.slack\.com/services/", r"[A-Za-z0-9/]{20,}"),
    ("stripe", r"[rs]k_(?:live|test)_", rf"{_WORD}{{10,}}"),
    ("stripe", r"whsec_", r"[A-Za-z0-9+/]{20,}={0,2}"),
    ("groq", r"gsk_", rf"{_WORD}{{20,}}"),
    ("perplexity", r"pplx-", rf"{_WORD}{{20,}}"),
    ("nvidia", r"nvapi-", rf"{_DASHED}{{20,}}"),
    ("together", r"tgp_v1_", rf"{_DASHED}{{20,}}"),
    ("tavily", r"tvly-(?:dev-|prod-)?", r"[A-Za-z0-9-]{20,}"),
    ("langsmith", r"lsv2_(?:pt|sk)_", r"[0-9a-f]{20,}[0-9a-f_]*"),
    ("pinecone", r"pcsk_", r"\w{20,}"),
    ("pypi", r"pypi-AgE", rf"{_DASHED}{{16,}}"),
    ("databricks", r"dapi(?=[0-9a-f])", r"[0-9a-f]{32}(?:-\d)?"),
    ("digitalocean", r"do[opr]_v1_", r"[0-9a-f]{64}"),
    ("shopify", r"shp(?:at|ca|pa|ss)_", r"[0-9a-fA-F]{32}"),
    ("atlassian", r"ATATT3", r"[A-Za-z0-9_=-]{20,}"),
    ("supabase", r"sb_secret_|sb[ps]_", rf"{_DASHED}{{20,}}"),
    ("vercel", r"vc[kpi]_", rf"{_WORD}{{20,}}"),
    ("linear", r"lin_(?:api|oauth)_", rf"{_WORD}{{20,}}"),
    ("notion", r"ntn_", rf"{_WORD}{{30,}}"),
    ("vault", r"hv[sb]\.", rf"{_DASHED}{{20,}}"),
    ("grafana", r"glsa_", r"[A-Za-z0-9]{32}_[0-9a-f]{8}"),
    ("docker", r"dckr_pat_", rf"{_DASHED}{{20,}}"),
    ("figma", r"figd_", rf"{_DASHED}{{30,}}"),
    ("postman", r"PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    ("age", r"AGE-SECRET-KEY-1", r"[0-9A-Z]{30,}"),
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
#: Keys without a beginning that tells them from other text while they are incomplete.
_WHOLE: Final[tuple[tuple[str, str, str], ...]] = (
    ("openai", "", r"sess-(?![0-9a-f]{30,}(?![A-Za-z0-9]))[A-Za-z0-9]{30,}"),
    ("firecrawl", "", r"fc-[0-9a-f]{32}"),
    ("sendgrid", "", rf"SG\.{_DASHED}{{16,}}\.{_DASHED}{{16,}}"),
    ("mailgun", "", r"key-[0-9a-f]{32}"),
    ("twilio", "", r"SK[0-9a-f]{32}"),
    ("telegram", "", rf"\d{{8,10}}:AA{_DASHED}{{30,}}"),
    ("voyage", "", rf"pa-(?=[a-z0-9_-]{{0,43}}[A-Z])(?=[A-Za-z_-]{{0,43}}[0-9]){_DASHED}{{43}}(?!{_DASHED})"),
    ("azure", "", rf"{_WORD}{{52}}JQQJ9[9DH]{_WORD}[A-L]{_WORD}{{16}}[A-Za-z]{_WORD}{{7}}(?:{_WORD}{{2}}==)?"),
    ("azure", "", r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
    ("discord", "", (rf"[MNO](?=[A-Za-z_-]{{0,26}}[0-9]){_DASHED}{{22,27}}\.{_DASHED}{{6}}\.(?=[A-Za-z_-]{{0,37}}[0-9])"
     rf"(?=[a-z0-9_-]{{0,37}}[A-Z]){_DASHED}{{27,38}}(?!{_DASHED})")),
    ("discord", "", rf"mfa\.{_DASHED}{{80,}}|discord(?:app)?\.com/api/webhooks/\d{{15,20}}/{_DASHED}{{60,}}"),
    # A long run is scanned once: a token begins where no such run goes on.
    ("jwt", "", rf"(?<![_-])eyJ{_DASHED}{{8,8192}}+\.eyJ{_DASHED}{{8,}}+(?:\.{_DASHED}*)?"),
    # With key material, since prose names these lines too.
    ("pem", "", (r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
     rf"(?={_PEM_HEADERS}[^A-Za-z0-9+/=`.]{{0,64}}[A-Za-z0-9+/=]{{16}})"
     r"(?:(?:[^-]|-(?!----)){1,20000}-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
     r"|(?:\s*[A-Z][A-Za-z-]{1,20}: [^\n]{0,200}\n){0,4}[A-Za-z0-9+/=\s]{16,})")),
)  # fmt: skip
_ROWS: Final = (*TABLE, *_WORDY, *_WHOLE)

#: No part of a word comes before a key, except an escape, a bot's path segment, or a terminal colour.
_COLOURS: Final = "|".join(
    rf"(?<=\x1b\[{codes}m)" for codes in (r"\d", r"\d\d", r"\d;\d\d", r"\d\d;\d", r"\d\d;\d;\d\d", r"\d\d;\d;\d\d\d")
)
BEFORE: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2}))"
_ANY: Final = "|".join(f"(?P<_{at}>(?:{begins})(?:{goes_on}))" for at, (_, begins, goes_on) in enumerate(_ROWS))
_KEY: Final = re.compile(rf"(?:(?<![A-Za-z0-9])|(?<=m)(?:{_COLOURS})|(?<=/bot))(?:{_ANY})")
#: A key of this length directly after a letter is still a key, where base64 was decoded without knowing its format.
_GLUED: Final = re.compile(rf"(?=.{{30}})(?:{_ANY})", re.DOTALL)

#: What every key of a kind begins with: the header of a token and the first line of a private key are no secret.
_BEGINNING: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----\s*|eyJ[A-Za-z0-9_-]*(?:\.(?:eyJ)?)?|\d{8,10}:AA|"
    + "|".join(begins for _, begins, _ in (*TABLE, *_WORDY))
)
#: What closes the string, sentence or program in which a key was cut.
CLOSERS: Final = " \t\r\n\"'`\\)]}>,.;…"
_TELLING_CHARS: Final = 8
_OWN_CHARS: Final = 4


class Hit(NamedTuple):
    """A secret at `text[start:end]`, its vendor, and its text without escapes."""

    start: int
    end: int
    vendor: str
    secret: str


def keys(text: str, *, glued: bool = False) -> Iterator[Hit]:
    """Yield the keys of vendors; `glued` ones may follow a letter."""
    for match in (_GLUED if glued else _KEY).finditer(text):
        yield Hit(*match.span(), _ROWS[int((match.lastgroup or "_0")[1:])][0], match[0])


def is_telling(begun: str) -> bool:
    """Return whether this beginning of a secret reveals it: more than its vendor's prefix, no word and no number."""
    if len(begun) < _TELLING_CHARS:
        return False
    if (beginning := _BEGINNING.match(begun)) is not None:
        return sum(map(str.isalnum, begun[beginning.end() :])) >= _OWN_CHARS
    return any(map(str.isdigit, begun)) and any(map(str.isalpha, begun))
