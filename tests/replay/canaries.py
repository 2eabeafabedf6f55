"""Keys that open nothing, one of each vendor: in the shape of the vendor's own, drawn from a seed, never typed."""

import base64
import random
import string
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_CHANCE: Final = random.Random("canary")  # noqa: S311 - they open nothing
_UPPER: Final = string.ascii_uppercase + string.digits
_LETTERS: Final = string.ascii_letters + string.digits


def _some(count: int, alphabet: str = _LETTERS) -> str:
    """Never a number or a word alone."""
    return "7a" + "".join(_CHANCE.choice(alphabet) for _ in range(count - 2))


def _hex(count: int) -> str:
    return _some(count, "0123456789abcdef")


def _uuid() -> str:
    return "-".join(_hex(size) for size in (8, 4, 4, 4, 12))


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
    "newrelic": "NR" + "AK-" + _some(27, _UPPER).upper(),
    "newrelic-license": "eu01xx" + _hex(30) + "NRAL",
    "sentry": "snt" + "rys_" + _base64('{"iat":1700000000.1,"url":"https://sentry.example"}') + "=_" + _some(43),
    "sentry-user": "snt" + "ryu_" + _hex(64),
    "airtable": "pat" + _some(14) + "." + _hex(64),
    "hubspot": "pat-" + "na1-" + _uuid(),
    "netlify": "nf" + "p_" + _some(36),
    "planetscale": "pscale" + "_tkn_" + _some(43),
    "planetscale-password": "pscale" + "_pw_" + _some(43),
    "pulumi": "pu" + "l-" + _hex(40),
    "rubygems": "ruby" + "gems_" + _hex(48),
    "square": "sq0" + "csp-" + _some(43),
    "square-access": "EA" + "AA" + _some(60),
    "terraform": _some(14) + ".atla" + "sv1." + _some(67),
    "1password": "ops" + "_" + _base64('{"signInAddress":"x.1password.com","userAuth":{}}') + _some(250),
    "1password-secret": "A" + "3-" + "-".join(_some(size, _UPPER).upper() for size in (6, 11, 5, 5, 5)),
    "brevo": "xkey" + "sib-" + _hex(64) + "-" + _some(16),
    "doppler": "dp" + ".pt." + _some(43),
    "doppler-service": "dp" + ".st.prd_eu." + _some(43),
    "dynatrace": "dt0" + "c01." + _some(24, _UPPER).upper() + "." + _some(64, _UPPER).upper(),
    "mapbox": "s" + "k." + _base64('{"u":"someone","a":"7ab8cd90ef12gh34"}') + "." + _some(22),
    "fly": "fo" + "1_" + _some(43),
    "fly-macaroon": "fm" + "2_" + _some(120) + "==",
    "prefect": "pn" + "u_" + _some(36),
    "wandb": "wan" + "db_v1_" + _some(77),
    "e2b": "e2" + "b_" + _hex(40),
    "runpod": "rp" + "a_" + _some(46),
    "buildkite": "bk" + "ua_" + _hex(40),
    "circleci": "CCI" + "PAT_" + _some(22) + "_" + _hex(40),
    "jwe": ".".join([_base64('{"alg":"RSA-OAEP-256","enc":"A256GCM"}'), _some(342), _some(16), _some(80), _some(22)]),
    "jwe-direct": ".".join([_base64('{"alg":"dir","enc":"A256GCM"}'), "", _some(16), _some(80), _some(22)]),
    "paseto": "v4" + ".local." + _some(130),
    "paseto-footer": "v2" + ".public." + _some(130) + "." + _some(20),
    "openai-alike": "sk" + "-" + _hex(32),
    "stripe-webhook": "wh" + "sec_" + _some(32),
    "langfuse": "sk" + "-lf-" + _uuid(),
    "google-login": "ya" + "29." + _some(120),
    "google-client": "GOC" + "SPX-" + _some(28),
    "google-auth": "AQ" + "." + _some(50),
    "aws-bedrock": "AB" + "SK" + _some(128),
    "aws-bedrock-short": "bedrock" + "-api-key-" + _some(120),
    "slack-app": "xa" + "pp-1-" + "A0123456789-" + "1234567890123-" + _hex(64),
    "together": "tgp" + "_v1_" + _some(43),
    "tavily": "tv" + "ly-dev-" + _some(32),
    "pinecone": "pc" + "sk_" + _some(70),
    "digitalocean": "do" + "p_v1_" + _hex(64),
    "shopify": "shp" + "at_" + _hex(32),
    "vercel": "vc" + "p_" + _some(56),
    "linear": "lin" + "_api_" + _some(40),
    "notion": "nt" + "n_" + _some(46),
    "notion-old": "sec" + "ret_" + _some(43),
    "age": "AGE-SECRET" + "-KEY-1" + _some(58, _UPPER).upper(),
    "huggingface-org": "api" + "_org_" + _some(34),
    "fireworks": "fw" + "_" + _some(24),
    "cerebras": "cs" + "k-" + _some(48),
    "elevenlabs": "s" + "k_" + _hex(48),
    "openai-session": "se" + "ss-" + _some(40),
    "firecrawl": "f" + "c-" + _hex(32),
    "mailgun": "ke" + "y-" + _hex(32),
}
#: Shapes that are secrets in one place only, with the text around them.
PLACED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "slack": f"https://hooks.slack.com/services/T01234567/B01234567/{_some(24)}",
        "discord": f"https://discord.com/api/webhooks/123456789012345678/{_some(68)}",
        "aws": f"AWS4-HMAC-SHA256 Credential=x/20261119/us-east-1/s3/aws4_request, Signature={_hex(64)}",
    }
)
