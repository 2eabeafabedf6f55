"""docs/configuration.md, drawn from the table of settings: name, environment, flag, default, what is allowed, why."""

from operator import attrgetter
from pathlib import Path

from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.config.show import shown
from wiretape.proxy.config.table import FLAGS, PREFIX, ROUTE, SERVER, TARGET, Setting
from wiretape.proxy.limits import KEY_CHARS_MIN

__all__ = ["configuration"]

_HEAD = """# Configuration

Drawn from `proxy/config/table.py` by `make docs`.

`wiretape serve --upstream URL` needs no file. Flags go over the environment, the environment goes over `wiretape.toml`
(in the working folder, or the one that `--config` or `WIRETAPE_CONFIG` names), and that over the defaults;
`wiretape config show` says where each value came from. A value of another kind stops the start with one line that
names the place, and so does an unknown name in the file or as a flag. A variable that begins with `WIRETAPE_` and is no
setting stops it where it is nearly the name of one; any other is passed over, and `serve`, `record`, `doctor` and
`config show` say so on stderr, since it may be somebody else's. Nothing is said of those that the file or a setting
like `key_env` names, of `WIRETAPE_CORPUS` and `WIRETAPE_LAWS` (for the tests of this repository), and of what
Kubernetes sets beside a service named `wiretape` or `wiretape-NAME`, such as `WIRETAPE_SERVICE_HOST`: a `WIRETAPE_PORT`
like `tcp://10.0.0.1:8787` is not read as a port. Lists in the environment have commas between their items; relative
paths count from the folder of the file that they stand in, else from the working folder.
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

[keys]                                    # Wiretape's own, besides WIRETAPE_KEY
alice = { env = "WIRETAPE_KEY_ALICE" }
bob = { file = "bob.key" }                # mode 0600 or less
```
"""

_SERVER = "## The server"

_ROUTE = """## Routes

At the top of the file, in the environment and as a flag these count for every route; inside `[routes.NAME]` for that
one, over what stands at the top. Environment and flags go over both. Those marked with * say something about one
upstream: outside of `[routes.NAME]` they count for the default route only.
"""

_TARGET = """## Upstreams

At the top of the file for the default route, in `[routes.NAME]` for that one, in a table of `fallbacks` for that one.
Environment and flags speak of the default route. A key stays with its upstream: whoever names another one with
`--upstream` leaves the key of the file behind.

`fallbacks` is a list, in order: the name of a route (its first upstream), a URL, or a table of the settings below. On
another host than the first upstream a fallback gets no key of the caller's unless it says `caller_key = true`.
"""

_KEYS = f"""## Keys of Wiretape's own

`{PREFIX}KEY`, or in `[keys]` one line for each name: `{{ env = VARIABLE }}` or `{{ file = PATH }}`, never the key
itself. A key has at least {KEY_CHARS_MIN} characters. With any of them every caller presents one, as
`Authorization: Bearer`, `x-api-key`, `api-key`, `x-goog-api-key` or `ocp-apim-subscription-key`, and none of these
headers is passed on, nor `x-amz-security-token`: each route then needs a key of its own for its upstream.
Listening on anything but this machine's loopback needs one.
"""


def configuration() -> str:
    """The whole document."""
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
    lines = ["| wiretape.toml | environment | flag | default | allowed | why |", "|---|---|---|---|---|---|"]
    for setting in settings:
        # The data folder is the platform's, and an upstream has no default.
        default = shown(attrgetter(setting.place)(defaults)) if setting.place not in ("", "data") else ""
        name = f"`{setting.name}`" + ("" if setting.shared else " *")
        flag = f"`{setting.flag}`" if setting.name in FLAGS else ""
        cells = (name, f"`{setting.environment}`", flag, f"`{default}`" if default else "")
        lines.append(f"| {' | '.join((*cells, setting.kind.allowed, setting.reason))} |")
    return "\n".join([*lines, ""])
