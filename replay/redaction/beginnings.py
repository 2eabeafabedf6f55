"""Secrets of which a text has only the beginning: of one that is known from elsewhere, or a vendor's in what was torn

What all keys of a vendor begin with is no secret, and neither is a word or a number.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from .vendors import Hit

__all__ = ["BEFORE", "Beginnings", "is_telling", "torn"]

#: Of a known secret; fewer stand by chance in much else, and leave the most of it.
_BEGUN_CHARS: Final = 8
#: Of them behind what all keys of the vendor begin with.
_OWN_CHARS: Final = 4
#: Of one file; each is found by its first characters, so more of them cost memory alone.
_BEGUN_MAX: Final = 1_000
#: What stands for something else, or is no secret by itself.
_NO_SECRETS: Final = frozenset({"bytes", "digits", "logprobs", "path", "prompt"})
#: What closes the string, the sentence or the program's text that was cut or is said again and again.
_CLOSERS: Final = " \t\r\n\"'`\\)]}>,.;…"

#: What no word begins with, by vendor ...
_OPENINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "anthropic": r"sk-ant-(?:[a-z]{2,8}\d\d-)?",
        "openrouter": r"sk-or-(?:v\d-)?",
        "langfuse": r"[sp]k-lf-",
        "openai": r"sk-(?:proj|svcacct|admin|None)-",
        "google": r"AIza(?:Sy)?|ya29\.|GOCSPX-|AQ\.",
        "aws": r"AKIA|ASIA|ABIA|ACCA|ABSK|bedrock-api-key-",
        "github": r"gh[pousr]_|github_pat_",
        "gitlab": r"gl(?:pat|dt|rt|ptt|cbt|ft|oas)-",
        "slack": r"xox[abcdeoprs]-|xapp-\d-|hooks\.slack\.com/services/",
        "stripe": r"[rs]k_(?:live|test)_|whsec_",
        "groq": r"gsk_",
        "perplexity": r"pplx-",
        "nvidia": r"nvapi-",
        "together": r"tgp_v1_",
        "tavily": r"tvly-(?:dev-|prod-)?",
        "langsmith": r"lsv2_(?:pt|sk)_",
        "pinecone": r"pcsk_",
        "pypi": r"pypi-AgE",
        "databricks": r"dapi(?=[0-9a-f])",
        "digitalocean": r"do[opr]_v1_",
        "shopify": r"shp(?:at|ca|pa|ss)_",
        "atlassian": r"ATATT3",
        "supabase": r"sb_secret_|sb[ps]_",
        "vercel": r"vc[kpi]_",
        "linear": r"lin_(?:api|oauth)_",
        "notion": r"ntn_",
        "vault": r"hv[sb]\.",
        "grafana": r"glsa_",
        "docker": r"dckr_pat_",
        "figma": r"figd_",
        "postman": r"PMAK-",
        "age": r"AGE-SECRET-KEY-1",
    }
)
#: ... and what words and names of programs begin with too: `hf_hub_download`, `npm_config_registry`, `sk-learn`.
_WORDY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "huggingface": r"hf_|api_org_",
        "xai": r"xai-",
        "replicate": r"r8_",
        "fireworks": r"fw_",
        "cerebras": r"csk-",
        "elevenlabs": r"sk_",
        "npm": r"npm_",
        "jina": r"jina_",
        "openai": r"sk-",
    }
)
_OPENING: Final = re.compile(
    # The first part of a token says how it was signed, the lines of a private key what it is.
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----\s*|eyJ[A-Za-z0-9_-]*(?:\.(?:eyJ)?)?|\d{8,10}:AA"
    rf"|{'|'.join([*_OPENINGS.values(), *_WORDY.values()])}"
)
#: Behind an escape a word begins too.
BEFORE: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2}))"
_BEGINS: Final = re.compile(BEFORE)
#: No vendor's shape is longer before it is one: behind that no beginning is looked for.
_TORN_CHARS: Final = 300
_OWN: Final = r"[A-Za-z0-9+/_-]"
#: Letters and digits in one run, so no words: of six characters, or of eight in both cases where words begin so.
_TORN: Final = re.compile(
    rf"{BEFORE}(?:(?:{'|'.join(f'(?P<{vendor}>{opening})' for vendor, opening in _OPENINGS.items())})"
    rf"(?={_OWN}*?(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{{6}}){_OWN}+"
    rf"|(?P<wordy>{'|'.join(_WORDY.values())})"
    r"(?=[A-Za-z]*[0-9])(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])[A-Za-z0-9]{8,})\Z"
)


def is_telling(begun: str, vendor: str = "") -> bool:
    """Whether so much of a secret gives it away: more than what others begin with, and neither a word nor a number."""
    if len(begun) < _BEGUN_CHARS or vendor in _NO_SECRETS:
        return False
    if (opening := _OPENING.match(begun)) is not None:
        return sum(map(str.isalnum, begun[opening.end() :])) >= _OWN_CHARS
    return any(map(str.isdigit, begun)) and any(map(str.isalpha, begun))


class Beginnings:
    """Of the secrets of one file."""

    def __init__(self) -> None:
        self._vendors: dict[str, str] = {}
        self._by_head: dict[str, list[str]] = {}
        self._chars_max = 0

    def __len__(self) -> int:
        return len(self._vendors)

    def add(self, vendor: str, secret: str) -> None:
        """One of which a beginning may stand somewhere."""
        if secret in self._vendors or len(self) >= _BEGUN_MAX or not is_telling(secret, vendor):
            return
        self._vendors[secret] = vendor
        alike = self._by_head.setdefault(secret[:_BEGUN_CHARS], [])
        alike.append(secret)
        alike.sort(key=lambda each: (-len(each), each))
        self._chars_max = max(self._chars_max, len(secret))

    def hits(self, said: str) -> Iterator[Hit]:
        """The one that this text ends inside, if there is one; the hit says the whole secret."""
        for end in sorted({len(said), len(said.rstrip(_CLOSERS))}, reverse=True):
            for start in range(max(0, end - self._chars_max), end - _BEGUN_CHARS + 1):
                alike = self._by_head.get(said[start : start + _BEGUN_CHARS])
                if alike and (hit := self._hit(said, start, end, alike)) is not None:
                    yield hit
                    return

    def _hit(self, said: str, start: int, end: int, alike: Sequence[str]) -> Hit | None:
        begun = said[start:end]
        for secret in alike:
            vendor = self._vendors[secret]
            if len(secret) > len(begun) and secret.startswith(begun) and is_telling(begun, vendor):
                inside = begun[0].isalnum() and _BEGINS.match(said, start) is None
                return None if inside else Hit(start, end, vendor, secret)
        return None

    def whole(self, vendor: str, secret: str) -> str:
        """The longest that begins so: a key that grows from frame to frame is one."""
        alike = self._by_head.get(secret[:_BEGUN_CHARS], ())
        return next((each for each in alike if self._vendors[each] == vendor and each.startswith(secret)), secret)


def torn(said: str) -> Iterator[Hit]:
    """What looks like a vendor's key at the end of what was cut, though it is shorter than any of them."""
    end = len(said.rstrip(_CLOSERS))
    if (match := _TORN.search(said, max(0, end - _TORN_CHARS), end)) is not None:
        vendor = next(name for name, found in match.groupdict().items() if found is not None)
        yield Hit(*match.span(), _wordy_vendor(match[0]) if vendor == "wordy" else vendor, match[0])


def _wordy_vendor(said: str) -> str:
    return next(vendor for vendor, opening in _WORDY.items() if re.match(opening, said))
