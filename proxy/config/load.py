"""From wiretape.toml, the environment and the flags to one Config, and where each value came from"""

import re
import secrets
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import LocalError

from ..limits import KEY_CHARS_MIN
from .layers import DEFAULT, Layers, environment_secret, file_secret, line, open_layers
from .model import Config, ConfigError, Egress
from .routes import default_route, named_routes
from .secrets import Key, Secret
from .table import PREFIX, ROUTE, SERVER, TARGET, with_values
from .url import UrlError, checked, is_loopback, origin_of

__all__ = ["Loaded", "load"]

_OWN_KEY: Final = PREFIX + "KEY"
_KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
#: An address that means all of this machine's.
_EVERYWHERE: Final = ("0.0.0.0", "::", "[::]")  # noqa: S104 - asked about, not listened on
_EGRESS: Final = ("egress_proxy", "egress_user", "egress_password_env")


class Loaded(NamedTuple):
    """The configuration, and for each setting (`port`, `routes.azure.upstream`, `keys.alice`) the layer it is from."""

    config: Config
    origins: Mapping[str, str]
    #: Variables that begin like settings and are none; whoever starts a server says so.
    unknown: tuple[str, ...] = ()


def load(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path, *, serving: bool = True) -> Loaded:
    """Flags (by a setting's name; None is not given) over `WIRETAPE_*` over wiretape.toml; raises ConfigError.

    Who only reads tapes is not `serving`: no upstream and no secret is asked for then, and none is read.
    """
    known = {name for setting in (*SERVER, *ROUTE, *TARGET) for name in (setting.name, setting.alias)} | {"config"}
    if strangers := set(flags) - known:
        raise LocalError(f"flags that are no setting: {sorted(strangers)}")
    layers = open_layers(flags, environ, cwd)
    origins: dict[str, str] = {}
    config = _server(layers, origins, serving=serving)
    routes = named_routes(layers, origins, serving=serving)
    first = default_route(layers, origins, routes, serving=serving)
    routes = routes if first is None else {"": first, **routes}
    config = replace(config, routes=routes, keys=_keys(layers, origins, serving=serving))
    if serving:
        _servable(config)
    return Loaded(config, origins, layers.unknown)


def _server(layers: Layers, origins: dict[str, str], *, serving: bool) -> Config:
    values: dict[str, Any] = {}
    named: dict[str, Any] = {}
    for setting in SERVER:
        given = layers.top(setting)
        origins[setting.name] = given.origin if given else DEFAULT
        if given:
            (values if setting.place else named)[setting.place or setting.name] = given.value
    data = values.pop("data", None) or _data_folder(layers)
    if named:
        values["upstream.egress"] = _egress(named, layers, origins, serving=serving)
    config: Config = with_values(Config(data=data), values)
    return config


def _egress(named: Mapping[str, str], layers: Layers, origins: Mapping[str, str], *, serving: bool) -> Egress:
    proxy, user, variable = (named.get(name) for name in _EGRESS)
    if proxy is None:
        given = next(name for name in _EGRESS if name in named)
        raise ConfigError(f"{_where(origins, given)}: needs egress_proxy beside it")
    password = ""
    if variable is not None:
        where = _where(origins, "egress_password_env")
        if user is None:
            raise ConfigError(f"{where}: needs egress_user beside it")
        password = environment_secret(where, variable, layers.environ).reveal() if serving else ""
    try:
        checked(proxy, allow_plain_http=True)
    except UrlError as exc:
        raise ConfigError(f"{_where(origins, 'egress_proxy')}: {exc}") from None
    scheme, host, port = origin_of(proxy)
    return Egress(tls=scheme == "https", host=host, port=port, user=user, password=password)


def _where(origins: Mapping[str, str], name: str) -> str:
    """How a setting's owner finds it: a variable or flag says its own name, a file does not."""
    origin = origins[name]
    return origin if origin.startswith(("--", PREFIX)) else f"{origin}: {name}"


def _keys(layers: Layers, origins: dict[str, str], *, serving: bool) -> tuple[Key, ...]:
    keys: list[Key] = []
    if layers.environ.get(_OWN_KEY):
        origins["keys.default"] = _OWN_KEY
        if serving:
            keys.append(Key("default", _long(_OWN_KEY, environment_secret(_OWN_KEY, _OWN_KEY, layers.environ))))
    document = layers.document.get("keys", {})
    for name, source in layers.table(document, "keys", document).items():
        where = f"{layers.file}: keys.{line(name)}"
        if not _KEY_NAME.fullmatch(name) or f"keys.{name}" in origins:
            raise ConfigError(f"{where}: a key's name is short, of letters, digits and - _ . and stands once")
        origins[f"keys.{name}"] = layers.file
        secret = _own_key(where, source, layers, serving=serving)
        if secret is not None:
            keys.append(Key(name, secret))
    if len({key.secret for key in keys}) < len(keys):
        raise ConfigError(f"{layers.file}: keys: two names have the same key")
    return tuple(keys)


def _own_key(where: str, source: Any, layers: Layers, *, serving: bool) -> Secret | None:
    allowed = f"{where}: must be {{ env = VARIABLE }} or {{ file = PATH }}, never the key itself"
    match source:
        case {"env": str(variable), **rest} if not rest:
            return _long(where, environment_secret(where, variable, layers.environ)) if serving else None
        case {"file": str(path), **rest} if not rest and path and "\0" not in path:
            return _long(where, file_secret(where, layers.path(Path(path), layers.folder))) if serving else None
        case _:
            raise ConfigError(allowed)


def _long(where: str, secret: Secret) -> Secret:
    if len(secret.reveal()) < KEY_CHARS_MIN:
        raise ConfigError(f"{where}: a key of Wiretape's has at least {KEY_CHARS_MIN} characters; {_fresh()}")
    return secret


def _fresh() -> str:
    return f"here is a fresh one: export {_OWN_KEY}={secrets.token_urlsafe(32)}"


def _servable(config: Config) -> None:
    """What only a server needs."""
    if not config.routes:
        raise ConfigError(f"no upstream: give --upstream URL, {PREFIX}UPSTREAM, or `upstream` in wiretape.toml")
    if not is_loopback(config.host) and not config.keys:
        raise ConfigError(f"host: other machines may only call with a key, and there is none; {_fresh()}")
    for name, route in config.routes.items():
        for target in route.targets:
            _, host, port = origin_of(target.url)
            if port == config.port and is_loopback(host) and (config.host in _EVERYWHERE or is_loopback(config.host)):
                raise ConfigError(f"{f'routes.{name}.' if name else ''}upstream: is this server itself")


def _data_folder(layers: Layers) -> Path:
    """The platform's folder for data (XDG; on macOS Apple's)."""
    home = layers.environ.get("HOME")
    xdg = layers.environ.get("XDG_DATA_HOME")
    if xdg and Path(xdg).is_absolute() and sys.platform != "darwin":
        return Path(xdg) / "wiretape"
    if not home:
        raise ConfigError(f"data: there is no HOME; give --data DIR or {PREFIX}DATA")
    if sys.platform == "darwin":
        return Path(home) / "Library" / "Application Support" / "wiretape"
    return Path(home) / ".local" / "share" / "wiretape"
