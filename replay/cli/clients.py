"""How clients learn the address of a server: environment variables, or a snippet for a file of theirs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from wiretape.proxy.config.model import Route

__all__ = ["ANTHROPIC", "CLIENTS", "OPENAI", "Snippet", "base_urls", "unproxied"]

#: With /v1. SDKs read the first one; LangChain, LiteLLM, llama-index and aider the second; Open WebUI the third.
OPENAI: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_BASE_URL")
#: Without /v1, which SDKs and Claude Code append themselves. LiteLLM reads the second one before the first.
ANTHROPIC: Final = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE")
#: Hosts that do not serve Anthropic's clients and must not see their keys.
_OPENAI_ONLY: Final = frozenset({"api.openai.com"})
_DIRECT: Final = "127.0.0.1,localhost"


def base_urls(url: str, routes: Mapping[str, Route]) -> dict[str, str]:
    """Return the variables that lead clients to a server with these routes.

    Routes called `openai` and `anthropic` are for that kind of client. Otherwise both use the default route, except
    that a key for Anthropic never goes to OpenAI.
    """
    default = routes.get("")
    openai, anthropic = (f"/{name}" if name in routes else "" for name in ("openai", "anthropic"))
    variables: dict[str, str] = {}
    if openai or default is not None:
        variables |= dict.fromkeys(OPENAI, f"{url}{openai}/v1")
    if anthropic or (default is not None and urlsplit(default.targets[0].url).hostname not in _OPENAI_ONLY):
        variables |= dict.fromkeys(ANTHROPIC, f"{url}{anthropic}")
    return variables


def unproxied(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with loopback excluded from its HTTP proxy."""
    direct = dict(environ)
    if any(name.lower() in ("http_proxy", "all_proxy") and value for name, value in environ.items()):
        for name in ("NO_PROXY", "no_proxy"):
            hosts = environ.get(name)
            direct[name] = f"{hosts},{_DIRECT}" if hosts else _DIRECT
    return direct


class Snippet(NamedTuple):
    """What a client needs that reads no base URL from the environment. `URL` in it is replaced by the address."""

    #: A file, or where else the text goes.
    where: str
    text: str
    #: How to run the client then.
    command: str


CLIENTS: Final[Mapping[str, Snippet]] = MappingProxyType(
    {
        "aider": Snippet(
            ".aider.conf.yml", "openai-api-base: URL/v1\n", "aider --model openai/MODEL --message 'Hello'"
        ),
        "claude-code": Snippet(
            "~/.claude/settings.json",
            '{\n  "env": {\n    "ANTHROPIC_BASE_URL": "URL"\n  }\n}\n',
            "claude -p 'Hello'",
        ),
        "codex": Snippet(
            "~/.codex/config.toml",
            """\
model = "MODEL"
model_provider = "wiretape"

[model_providers.wiretape]
name = "wiretape"
base_url = "URL/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
""",
            "codex exec 'Hello'",
        ),
        "hermes": Snippet(
            "~/.hermes/config.yaml",
            "model:\n  default: MODEL\n  provider: custom\n  base_url: URL/v1\n  api_key: KEY\n",
            "hermes chat -Q -q 'Hello'",
        ),
        "langchain": Snippet(
            "your program, unless it takes base_url from OPENAI_BASE_URL",
            'ChatOpenAI(model="MODEL", base_url="URL/v1")\n',
            "python agent.py",
        ),
        "litellm": Snippet(
            "the proxy's configuration",
            """\
model_list:
  - model_name: MODEL
    litellm_params:
      model: openai/MODEL
      api_base: URL/v1
      api_key: os.environ/OPENAI_API_KEY
""",
            "litellm --config config.yaml",
        ),
        "llm": Snippet(
            "extra-openai-models.yaml, in the folder of the file that `llm logs path` names",
            """\
- model_id: wiretape
  model_name: MODEL
  api_base: URL/v1
  api_key_name: openai
  supports_tools: true
""",
            "llm -m wiretape 'Hello'",
        ),
        "opencode": Snippet(
            "opencode.json",
            """\
{
  "model": "wiretape/MODEL",
  "provider": {
    "wiretape": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "wiretape",
      "options": {
        "baseURL": "URL/v1",
        "apiKey": "{env:OPENAI_API_KEY}"
      },
      "models": {
        "MODEL": {
          "name": "MODEL",
          "tool_call": true
        }
      }
    }
  }
}
""",
            "opencode run 'Hello'",
        ),
        "vercel": Snippet(
            "your program (@ai-sdk/anthropic needs the /v1, unlike other clients)",
            "const openai = createOpenAI({ baseURL: 'URL/v1' });\n"
            "const anthropic = createAnthropic({ baseURL: 'URL/v1' });\n",
            "node agent.mjs",
        ),
    }
)
