"""Which variables tell a client where to ask, each as its readers expect it: with /v1 or without"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from wiretape.proxy.config.model import Route

__all__ = ["ANTHROPIC", "OPENAI", "base_urls", "unproxied"]

#: With /v1. The SDKs and what is built on them read the first; LangChain, LiteLLM, llama-index and aider the second;
#: Open WebUI and some others the third.
OPENAI: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_BASE_URL")
#: Without: the SDKs and Claude Code append /v1/messages themselves. LiteLLM reads the second before the first.
ANTHROPIC: Final = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE")

#: Hosts that do not know the other's requests, and must not see the other's key.
_OPENAI_ALONE: Final = frozenset({"api.openai.com"})
#: `Route.name` of an upstream that is meant for one of the two.
_OPENAI_ROUTE: Final = "openai"
_ANTHROPIC_ROUTE: Final = "anthropic"
_DIRECT: Final = "127.0.0.1,localhost"


def base_urls(url: str, routes: Mapping[str, Route]) -> dict[str, str]:
    """For a server at `url`. A route called `openai` or `anthropic` is where that kind of client asks; else both ask
    the default route, save that a key for Anthropic never goes to OpenAI.
    """
    default = routes.get("")
    openai = _prefix(_OPENAI_ROUTE, routes)
    anthropic = _prefix(_ANTHROPIC_ROUTE, routes)
    told: dict[str, str] = {}
    if openai or default is not None:
        told |= dict.fromkeys(OPENAI, f"{url}{openai}/v1")
    if anthropic or (default is not None and _host(default) not in _OPENAI_ALONE):
        told |= dict.fromkeys(ANTHROPIC, f"{url}{anthropic}")
    return told


def unproxied(environ: Mapping[str, str]) -> dict[str, str]:
    """The same environment, in which no egress proxy stands between the client and this machine."""
    told = dict(environ)
    if any(name.lower() in ("http_proxy", "all_proxy") and value for name, value in environ.items()):
        for name in ("NO_PROXY", "no_proxy"):
            known = environ.get(name)
            told[name] = f"{known},{_DIRECT}" if known else _DIRECT
    return told


def _prefix(name: str, routes: Mapping[str, Route]) -> str:
    return f"/{name}" if name in routes else ""


def _host(route: Route) -> str:
    return urlsplit(route.targets[0].url).hostname or ""
