"""Keys that open nothing, one of each vendor: in the shape of the vendor's own, drawn from a seed, never typed."""

import base64
import random
import string
from collections.abc import Mapping
from typing import Final

_CHANCE: Final = random.Random("canary")  # noqa: S311 - they open nothing
_LETTERS: Final = string.ascii_letters + string.digits


def _some(count: int, alphabet: str = _LETTERS) -> str:
    """Never a number or a word alone."""
    return "7a" + "".join(_CHANCE.choice(alphabet) for _ in range(count - 2))


def _hex(count: int) -> str:
    return _some(count, "0123456789abcdef")


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def pieces(text: str, chars: int) -> list[str]:
    """Return a text in pieces of this many characters."""
    return [text[at : at + chars] for at in range(0, len(text), chars)]


#: Put together from two parts, so that no scanner of this repository takes them for keys.
CANARIES: Final[Mapping[str, str]] = {
    "openai": "sk-" + _some(48),
    "openai-project": "sk-" + "proj-" + _some(20) + "-" + _some(40) + "_" + _some(20),
    "anthropic": "sk-" + "ant-api03-" + _some(60) + "-AA",
    "openrouter": "sk-" + "or-v1-" + _hex(64),
    "google": "AI" + "za" + _some(35),
    "aws": "AK" + "IA" + _some(16, string.ascii_uppercase + string.digits).upper(),
    "aws-session": "AS" + "IA" + _some(16, string.ascii_uppercase + string.digits).upper(),
    "github": "gh" + "p_" + _some(36),
    "github-fine": "github" + "_pat_" + _some(22) + "_" + _some(59),
    "gitlab": "gl" + "pat-" + _some(20),
    "slack": "xo" + "xb-" + "1234567890-" + _some(24),
    "stripe": "sk_" + "live_" + _some(24),
    "stripe-restricted": "rk_" + "live_" + _some(24),
    "huggingface": "hf" + "_" + _some(34),
    "groq": "gsk" + "_" + _some(52),
    "xai": "xai" + "-" + _some(80),
    "replicate": "r8" + "_" + _some(37),
    "perplexity": "pplx" + "-" + _some(48),
    "nvidia": "nv" + "api-" + _some(64),
    "npm": "npm" + "_" + _some(36),
    "pypi": "pypi-" + "AgEIcHlwaS5vcmc" + _some(60),
    "sendgrid": "SG" + "." + _some(22) + "." + _some(43),
    "twilio": "SK" + _hex(32),
    "telegram": "7123456789" + ":" + "AA" + _some(33),
    "databricks": "dapi" + _hex(32),
    "jwt": _base64('{"alg":"HS256","typ":"JWT"}') + "." + _base64('{"sub":"1234567890","name":"c"}') + "." + _some(43),
    "pem": "-----BEGIN " + "PRIVATE KEY-----\n" + _some(64) + "\n" + _some(64) + "\n-----END " + "PRIVATE KEY-----",
    "langsmith": "lsv2_" + "pt_" + _hex(32) + "_" + _hex(10),
    "atlassian": "ATATT" + "3" + _some(60),
    "supabase": "sb" + "_secret_" + _some(31),
    "slack-client": "xo" + "xc-" + "123456789012-" + _some(30),
    "vault": "hv" + "s." + _some(90),
    "grafana": "gl" + "sa_" + _some(32) + "_" + _hex(8),
    "docker": "dckr" + "_pat_" + _some(27),
    "google-refresh": "1/" + "/0" + _some(60),
    "figma": "fi" + "gd_" + _some(40),
    "postman": "PM" + "AK-" + _hex(24) + "-" + _hex(34),
    "jina": "ji" + "na_" + _some(60),
    "voyage": "p" + "a-" + _some(43),
    "openai-dashes": "sk-" + "Ab7-" + _some(18),
    "openai-dash-behind": "sk-" + "7bQ" + _some(20) + "-" + _some(22),
    "azure": _some(52) + "JQQ" + "J99BE" + "AC" + _some(14) + "A" + _some(7),
    "azure-client": "7ab8" + "Q~" + _some(34),
    "discord": "MTk4NjIyNDgzNDcxOTI1MjQ4" + "." + "Cl2FMQ" + "." + _some(26) + "K",
    "discord-factor": "mfa" + "." + _some(84),
    "pem-encrypted": "-----BEGIN "
    "RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123\n\n"
    + _some(64)
    + "\n"
    + _some(64)
    + "\n-----END "
    + "RSA PRIVATE KEY-----",
    "pem-pgp": "-----BEGIN "
    "PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n" + _some(64) + "\n-----END " + "PGP PRIVATE KEY BLOCK-----",
}
