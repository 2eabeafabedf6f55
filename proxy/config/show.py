"""Every setting with its value and origin, as `wiretape config show` prints them; secrets are masked."""

from operator import attrgetter
from typing import Any, NamedTuple

from .layers import DEFAULT
from .load import Loaded
from .model import ROUTE, SERVER

__all__ = ["Row", "rows", "shown"]


class Row(NamedTuple):
    """One setting."""

    name: str
    value: str
    origin: str


def rows(loaded: Loaded) -> list[Row]:
    """Return the server's settings, then each route's."""
    config, origins = loaded.config, loaded.origins
    found = {setting.name: shown(attrgetter(setting.place)(config)) for setting in SERVER if setting.place}
    egress = config.upstream.egress
    if egress is not None:
        host = f"[{egress.host}]" if ":" in egress.host else egress.host
        found["egress_proxy"] = f"{'https' if egress.tls else 'http'}://{host}:{egress.port}"
        found["egress_user"] = egress.user or ""
        found["egress_password_env"] = "" if origins["egress_password_env"] == DEFAULT else "***"
    table = [Row(setting.name, found.get(setting.name, ""), origins[setting.name]) for setting in SERVER]
    table += [Row(name, "***", origin) for name, origin in origins.items() if name.startswith("keys.")]
    for name, route in config.routes.items():
        prefix, first = f"routes.{name}." if name else "", route.targets[0]
        values = {
            "upstream": first.url,
            "key_env": "***",
            "key_file": "***",
            "key_header": first.key_header,
            "caller_key": shown(first.caller_key),
            "allow_plain_http": shown(first.allow_plain_http),
            "fallbacks": ", ".join(target.name for target in route.targets[1:]),
        }
        given = {key: value for key, value in values.items() if prefix + key in origins}
        given |= {setting.name: shown(attrgetter(setting.place)(route)) for setting in ROUTE}
        table += [Row(prefix + key, value, origins[prefix + key]) for key, value in given.items()]
    return table


def shown(value: Any) -> str:
    """Return a value as it is written in wiretape.toml, or nothing for None."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            texts: tuple[object, ...] = value  # pyright: ignore[reportUnknownVariableType] - all are texts
            return ", ".join(map(str, texts))
        case _:
            return str(value)
