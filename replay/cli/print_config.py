"""What to write into the files of clients that do not read a base URL from the environment"""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["CLIENTS", "Snippet", "snippet"]


class Snippet(NamedTuple):
    """What goes where; `where` may be a command line or an environment."""

    where: str
    text: str
    #: How it is run then.
    command: str


def snippet(client: str, url: str) -> Snippet:
    """For one of CLIENTS, and a server at `url`."""
    return CLIENTS[client](url)


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _hermes(url: str) -> Snippet:
    text = f"""\
model:
  default: MODEL
  provider: custom
  base_url: {url}/v1
  api_key: KEY
"""
    return Snippet("~/.hermes/config.yaml", text, "hermes chat -Q -q 'Hello'")


def _codex(url: str) -> Snippet:
    text = f"""\
model = "MODEL"
model_provider = "wiretape"

[model_providers.wiretape]
name = "wiretape"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""
    return Snippet("~/.codex/config.toml", text, "codex exec 'Hello'")


def _opencode(url: str) -> Snippet:
    options = {"baseURL": f"{url}/v1", "apiKey": "{env:OPENAI_API_KEY}"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "wiretape", "options": options}
    models = {"MODEL": {"name": "MODEL", "tool_call": True}}
    text = _json({"model": "wiretape/MODEL", "provider": {"wiretape": {**provider, "models": models}}})
    return Snippet("opencode.json", text, "opencode run 'Hello'")


def _claude_code(url: str) -> Snippet:
    return Snippet("~/.claude/settings.json", _json({"env": {"ANTHROPIC_BASE_URL": url}}), "claude -p 'Hello'")


def _llm(url: str) -> Snippet:
    text = f"""\
- model_id: wiretape
  model_name: MODEL
  api_base: {url}/v1
  api_key_name: openai
  supports_tools: true
"""
    where = "extra-openai-models.yaml, beside the file that `llm logs path` names"
    return Snippet(where, text, "llm -m wiretape 'Hello'")


def _langchain(url: str) -> Snippet:
    text = f'ChatOpenAI(model="MODEL", base_url="{url}/v1")\n'
    return Snippet("your program, where it does not leave base_url to OPENAI_BASE_URL", text, "python agent.py")


def _vercel(url: str) -> Snippet:
    text = f"""\
const openai = createOpenAI({{ baseURL: '{url}/v1' }});
const anthropic = createAnthropic({{ baseURL: '{url}/v1' }});
"""
    return Snippet("your program: @ai-sdk/anthropic wants a /v1 that other clients do not", text, "node agent.mjs")


def _aider(url: str) -> Snippet:
    return Snippet(".aider.conf.yml", f"openai-api-base: {url}/v1\n", "aider --model openai/MODEL --message 'Hello'")


def _litellm(url: str) -> Snippet:
    text = f"""\
model_list:
  - model_name: MODEL
    litellm_params:
      model: openai/MODEL
      api_base: {url}/v1
      api_key: os.environ/OPENAI_API_KEY
"""
    return Snippet("the proxy's configuration", text, "litellm --config config.yaml")


CLIENTS: Final[Mapping[str, Callable[[str], Snippet]]] = MappingProxyType({
    "aider": _aider,
    "claude-code": _claude_code,
    "codex": _codex,
    "hermes": _hermes,
    "langchain": _langchain,
    "litellm": _litellm,
    "llm": _llm,
    "opencode": _opencode,
    "vercel": _vercel,
})  # fmt: skip
