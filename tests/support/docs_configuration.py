"""docs/configuration.md, generated from the settings: name, environment, flag, default, allowed values, purpose."""

from operator import attrgetter
from pathlib import Path

from wiretape.proxy.config.kinds import PREFIX, Setting
from wiretape.proxy.config.load import shown
from wiretape.proxy.config.model import FLAGS, ROUTE, SERVER, TARGET, Config, Route, Target
from wiretape.proxy.limits import KEY_CHARS_MIN

__all__ = ["configuration"]

_HEAD = """# Configuration

Generated from `proxy/config/model.py` by `make docs`.

`wiretape serve --upstream URL` needs no file. Flags override the environment, the environment overrides `wiretape.toml`
(in the working folder, or the file named by `--config` or `WIRETAPE_CONFIG`), and that overrides the defaults.
`wiretape config show` prints every setting and its source.

- An invalid value, or an unknown name in the file or among the flags, stops the start with one line naming the place.
- A variable that begins with `WIRETAPE_` and is nearly the name of a setting does so too: `Unknown setting
  WIRETAPE_PRT (did you mean WIRETAPE_PORT?)`. Any other is ignored; `serve`, `record`, `doctor` and `config show` list
  those on stderr, except the ones that a setting like `key_env` names.
- The variables that Kubernetes sets for a service named `wiretape` or `wiretape-NAME` are ignored, such as
  `WIRETAPE_SERVICE_HOST` or a `WIRETAPE_PORT` like `tcp://10.0.0.1:8787`. So are `WIRETAPE_CORPUS` and `WIRETAPE_LAWS`,
  which the tests of this repository read.
- Lists in variables and flags have commas between their items.
- Relative paths in the file start at its folder, all others at the working folder.
"""

_EXAMPLE = """## An example

```toml
port = 8787
upstream = "https://api.openai.com/v1"    # the default route: /v1/...
fallbacks = ["azure", "http://localhost:11434/v1"]
idle_s = 300                              # for every route

[routes.azure]                            # /azure/v1/...
upstream = "https://name.openai.azure.com/openai/deployments/gpt?api-version=2024-10-21"
key_env = "AZURE_OPENAI_KEY"

[routes.hermes]                           # /hermes/v1/...
upstream = "http://127.0.0.1:8642/v1"
hermes = true

[keys]                                    # Wiretape's own, in addition to WIRETAPE_KEY
alice = { env = "WIRETAPE_KEY_ALICE" }
bob = { file = "bob.key" }                # mode 0600 or less
```
"""

_SERVER = "## The server"

_ROUTE = """## Routes

At the top of the file, in the environment and as flags these apply to every route. Inside `[routes.NAME]` they apply to
that route and override the top of the file, but not environment and flags. Settings marked with * describe one
upstream: outside `[routes.NAME]` they apply to the default route only.
"""

_TARGET = """## Upstreams

At the top of the file for the default route, in `[routes.NAME]` for that route, in a table of `fallbacks` for that
fallback. Environment and flags apply to the default route. A key stays with its upstream: if you name another one with
`--upstream`, the key in the file is not used.

`fallbacks` is a list, in order: the name of a route (its first upstream), a URL, or a table of the settings below. A
fallback on another host than the first upstream does not get the caller's key unless it has `caller_key = true`.
"""

_KEYS = f"""## Wiretape's own keys

Set `{PREFIX}KEY`, or in `[keys]` one line per name: `{{ env = VARIABLE }}` or `{{ file = PATH }}`, never the key
itself. A key has at least {KEY_CHARS_MIN} characters. If there are any, every caller must present one as
`Authorization: Bearer`, `x-api-key`, `api-key`, `x-goog-api-key` or `ocp-apim-subscription-key`. None of these headers
is passed on, nor is `x-amz-security-token`, so each route then needs its own key for its upstream. Listening on any
address but this machine's loopback requires a key.
"""


def configuration() -> str:
    """Return the whole document."""
    parts = [_HEAD, _EXAMPLE, _SERVER + "\n", _table(SERVER, Config(data=Path()))]
    parts += [
        _ROUTE,
        _table(ROUTE, Route(name="", targets=())),
        _TARGET,
        _table(TARGET, Target(name="", url="")),
        _KEYS,
    ]
    return "\n".join(parts)


def _table(settings: tuple[Setting, ...], defaults: object) -> str:
    lines = ["| wiretape.toml | environment | flag | default | allowed | purpose |", "|---|---|---|---|---|---|"]
    for setting in settings:
        # The data folder is the platform's, and an upstream has no default.
        default = shown(attrgetter(setting.place)(defaults)) if setting.place not in ("", "data") else ""
        name = f"`{setting.name}`" + ("" if setting.shared else " *")
        flag = f"`{setting.flag}`" if setting.name in FLAGS else ""
        cells = (name, f"`{setting.environment}`", flag, f"`{default}`" if default else "")
        lines.append(f"| {' | '.join((*cells, setting.kind.allowed, setting.reason))} |")
    return "\n".join([*lines, ""])
