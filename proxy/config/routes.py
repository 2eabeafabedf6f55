"""Routes and their upstreams, from the layers of the configuration

What is said of an upstream (its key, its fallbacks) counts with that upstream only: whoever names another one, in a
layer above, leaves the key behind that lay beside the first.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from .layers import DEFAULT, Given, Layers, environment_secret, file_secret, line
from .model import ConfigError, Route, Target
from .secrets import Secret
from .table import ROUTE, TARGET, Setting, with_values
from .url import UrlError, checked, origin_of, plain_name

__all__ = ["default_route", "named_routes"]

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_RESERVED: Final = frozenset({"v1", "wiretape"})
_AZURE: Final = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")
_ROUTE_KEYS: Final = frozenset({setting.name for setting in (*ROUTE, *TARGET)} | {"fallbacks"})
_TARGET_KEYS: Final = frozenset(setting.name for setting in TARGET)

_Find = Callable[[Setting], Given | None]


def named_routes(layers: Layers, origins: dict[str, str], *, serving: bool) -> dict[str, Route]:
    """Each `[routes.NAME]`, in the file's order."""
    document = layers.document.get("routes", {})
    tables: dict[str, dict[str, Any]] = {}
    for name, value in layers.table(document, "routes", document).items():
        if not _NAME.fullmatch(name) or name in _RESERVED:
            raise ConfigError(
                f"{layers.file}: routes.{line(name)}: a route's name is of a-z, 0-9, - and _, not v1 or wiretape"
            )
        tables[name] = layers.table(value, f"routes.{name}", _ROUTE_KEYS)
    routes: dict[str, Route] = {}
    for name, table in tables.items():
        prefix = f"routes.{name}."
        find = _within(layers, table, prefix)
        target = _target(find, prefix, layers, origins, serving=serving)
        if target is None:
            raise ConfigError(f"{layers.file}: {prefix}upstream: is missing")

        def of_route(setting: Setting, table: Mapping[str, Any] = table, prefix: str = prefix) -> Given | None:
            below = layers.inside(layers.document, setting) if setting.shared else None
            above = layers.above(setting) if setting.shared else None
            return above or layers.inside(table, setting, prefix) or below

        routes[name] = _route(name, target, of_route, prefix, origins)
    for name, table in tables.items():
        prefix = f"routes.{name}."
        if "fallbacks" in table:
            more = _fallbacks(table["fallbacks"], prefix, layers, routes, routes[name], serving=serving)
            origins[prefix + "fallbacks"] = layers.file
            routes[name] = replace(routes[name], targets=(*routes[name].targets[:1], *more))
    return routes


def default_route(
    layers: Layers, origins: dict[str, str], routes: Mapping[str, Route], *, serving: bool
) -> Route | None:
    """What stands behind /v1, if anything does."""
    upstream = layers.top(TARGET[0])
    lowest = layers.inside(layers.document, TARGET[0]) or layers.above(TARGET[0], flags=False) or upstream

    def find(setting: Setting) -> Given | None:
        given = layers.top(setting)
        if given is None or upstream is None or lowest is None:
            return None
        # Below the upstream it counts only where it cannot have been meant for another one.
        return given if given.rank >= upstream.rank or lowest.rank == upstream.rank else None

    target = _target(find, "", layers, origins, serving=serving)
    if target is None:
        _homeless(layers)
        return None
    route = _route("", target, layers.top, "", origins)
    if upstream is not None and upstream.rank == 1 and "fallbacks" in layers.document:
        more = _fallbacks(layers.document["fallbacks"], "", layers, routes, route, serving=serving)
        origins["fallbacks"] = layers.file
        route = replace(route, targets=(*route.targets, *more))
    return route


def _homeless(layers: Layers) -> None:
    """What is said of an upstream that nobody names is a mistake."""
    for setting in TARGET[1:]:
        if given := layers.top(setting):
            raise ConfigError(f"{given.origin}: {setting.name}: there is no upstream beside it")
    if "fallbacks" in layers.document:
        raise ConfigError(f"{layers.file}: fallbacks: there is no upstream beside it")


def _within(layers: Layers, table: Mapping[str, Any], prefix: str) -> _Find:
    return lambda setting: layers.inside(table, setting, prefix)


def _route(name: str, target: Target, find: _Find, prefix: str, origins: dict[str, str]) -> Route:
    values: dict[str, Any] = {}
    for setting in ROUTE:
        given = find(setting)
        origins[prefix + setting.name] = given.origin if given else DEFAULT
        if given:
            values[setting.place] = given.value
    route: Route = with_values(Route(name=name, targets=(target,)), values)
    return route


def _target(
    find: _Find, prefix: str, layers: Layers, origins: dict[str, str] | None, *, serving: bool
) -> Target | None:
    given = {setting.name: found for setting in TARGET if (found := find(setting))}
    if "upstream" not in given:
        return None
    upstream = given["upstream"]
    plain = given.get("allow_plain_http")
    try:
        url = checked(upstream.value, allow_plain_http=bool(plain and plain.value))
    except UrlError as exc:
        raise ConfigError(f"{_where(upstream, prefix, 'upstream')}: {exc}") from None
    key = _key(given, prefix, layers, serving=serving)
    host = origin_of(url)[1]
    values: dict[str, Any] = {"key_header": "api-key" if host.endswith(_AZURE) else "authorization"}
    values |= {name: given[name].value for name in ("key_header", "caller_key", "allow_plain_http") if name in given}
    if origins is not None:
        origins |= {prefix + name: found.origin for name, found in given.items()}
    return Target(name=plain_name(url), url=url, key=key, **values)


def _key(given: Mapping[str, Given], prefix: str, layers: Layers, *, serving: bool) -> Secret | None:
    sources = [name for name in ("key_env", "key_file") if name in given]
    if len(sources) > 1:
        raise ConfigError(f"{_where(given['key_file'], prefix, 'key_file')}: there is a key_env already")
    if not sources or not serving:
        return None
    source = given[sources[0]]
    where = _where(source, prefix, sources[0])
    if sources[0] == "key_env":
        return environment_secret(where, source.value, layers.environ)
    return file_secret(where, source.value)


def _fallbacks(
    value: Any, prefix: str, layers: Layers, routes: Mapping[str, Route], route: Route, *, serving: bool
) -> list[Target]:
    where = f"{layers.file}: {prefix}fallbacks"
    allowed = f"{where}: must be a list of route names, URLs or tables like {{ upstream = URL, key_env = VARIABLE }}"
    if not isinstance(value, list):
        raise ConfigError(allowed)
    first = origin_of(route.targets[0].url)
    targets: list[Target] = []
    entries: list[Any] = value  # pyright: ignore[reportUnknownVariableType] - each is looked at below
    for place, entry in enumerate(entries):
        if isinstance(entry, str) and entry in routes and entry != route.name:
            targets.append(_standing_in(routes[entry].targets[0], first, given=False))
            continue
        table = {"upstream": entry} if isinstance(entry, str) and "://" in entry else entry
        if not isinstance(table, dict):
            raise ConfigError(allowed)
        name = f"{prefix}fallbacks[{place}]"
        known = layers.table(table, name, _TARGET_KEYS)
        target = _target(_within(layers, known, name + "."), name + ".", layers, None, serving=serving)
        if target is None:
            raise ConfigError(f"{layers.file}: {name}.upstream: is missing")
        targets.append(_standing_in(target, first, given="caller_key" in known))
    return targets


def _standing_in(target: Target, first: tuple[str, str, int], *, given: bool) -> Target:
    """A caller's key was meant for the first upstream; another host gets it only where the owner says so."""
    return target if given or origin_of(target.url) == first else replace(target, caller_key=False)


def _where(given: Given, prefix: str, name: str) -> str:
    """How a setting's owner finds it: a variable or a flag says its own name, a file does not."""
    return f"{given.origin}: {prefix}{name}" if given.rank == 1 else given.origin
