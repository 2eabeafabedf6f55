"""Every setting with its value and origin, as `wiretape config show` prints them; of a secret only that it is there"""

from operator import attrgetter
from typing import Any, NamedTuple

from .layers import DEFAULT
from .load import Loaded
from .model import Route
from .table import ROUTE, SERVER

__all__ = ["Row", "rows", "shown"]


class Row(NamedTuple):
    """One setting."""

    name: str
    value: str
    origin: str


def rows(loaded: Loaded) -> list[Row]:
    """The server's first, then each route's."""
    config, origins = loaded.config, loaded.origins
    table: list[Row] = []
    for setting in SERVER:
        value = attrgetter(setting.place)(config) if setting.place else _egress(loaded, setting.name)
        table.append(Row(setting.name, shown(value), origins[setting.name]))
    table += [Row(name, "***", origin) for name, origin in origins.items() if name.startswith("keys.")]
    for name, route in config.routes.items():
        table += _route(route, f"routes.{name}." if name else "", loaded)
    return table


def shown(value: Any) -> str:
    """A value as it is written in wiretape.toml; nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        names: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType] - all of them are texts
        return ", ".join(map(str, names))
    return str(value)


def _route(route: Route, prefix: str, loaded: Loaded) -> list[Row]:
    origins = loaded.origins
    first = route.targets[0]
    table = [Row(prefix + "upstream", first.url, origins[prefix + "upstream"])]
    for name, value in (
        ("key_env", "***"),
        ("key_file", "***"),
        ("key_header", first.key_header),
        ("caller_key", shown(first.caller_key)),
        ("allow_plain_http", shown(first.allow_plain_http)),
    ):
        if prefix + name in origins:
            table.append(Row(prefix + name, value, origins[prefix + name]))
    if prefix + "fallbacks" in origins:
        names = ", ".join(target.name for target in route.targets[1:])
        table.append(Row(prefix + "fallbacks", names, origins[prefix + "fallbacks"]))
    for setting in ROUTE:
        value = attrgetter(setting.place)(route)
        table.append(Row(prefix + setting.name, shown(value), origins[prefix + setting.name]))
    return table


def _egress(loaded: Loaded, name: str) -> str:
    egress = loaded.config.upstream.egress
    if egress is None or loaded.origins[name] == DEFAULT:
        return ""
    host = f"[{egress.host}]" if ":" in egress.host else egress.host
    values = {
        "egress_proxy": f"{'https' if egress.tls else 'http'}://{host}:{egress.port}",
        "egress_user": egress.user or "",
    }
    return values.get(name, "***")
