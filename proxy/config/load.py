"""Load the configuration: flags over environment over wiretape.toml, with a row for each setting and its origin.

Settings of an upstream (its key, its fallbacks) apply to that upstream only: naming another one in a higher layer drops
the key of the first.
"""

import difflib
import re
import secrets
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import LocalError

from ..limits import KEY_CHARS_MIN, MEMORY_MAX_BYTES_MIN
from .model import (
    PREFIX,
    ROUTE,
    SERVER,
    TARGET,
    Config,
    ConfigError,
    Egress,
    Key,
    Route,
    Secret,
    SecretError,
    Setting,
    Target,
    from_environment,
    from_file,
    plain_word,
)
from .urls import UrlError, checked, is_loopback, origin_of, plain_name

__all__ = ["DEFAULT", "Loaded", "Row", "load", "shown"]

DEFAULT: Final = "default"
_OWN_KEY: Final = PREFIX + "KEY"

_FILE: Final = "wiretape.toml"
#: What is at the top of the file besides settings.
_TABLES: Final = ("fallbacks", "keys", "routes")
_NAME_CHARS_MAX: Final = 60
#: How similar a variable must be to a setting to be a typo. Less similar ones may belong to another program.
_TYPO: Final = 0.87
#: What Kubernetes sets in every container next to a service named `wiretape` or `wiretape-NAME`.
_SERVICE: Final = re.compile(
    PREFIX + r"(?:[A-Z0-9_]+?_)??(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?"
    r"|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?|(?P<setting>PORT))"
)
_SERVICE_PORT: Final = re.compile(r"(?:tcp|udp|sctp)://[0-9A-Fa-f.:\[\]]+:[0-9]+")
#: Variables of this repository's tests.
_OF_TESTS: Final = frozenset({PREFIX + "CORPUS", PREFIX + "LAWS"})
_KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_ROUTE_NAME: Final = re.compile(r"(?!(?:v1|wiretape)\Z)[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
#: Addresses that mean every address of this machine.
_EVERYWHERE: Final = ("0.0.0.0", "::", "[::]")  # noqa: S104 - compared, not listened on
_AZURE: Final = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")
_ANTHROPIC: Final = ("api.anthropic.com",)
_ROUTE_KEYS: Final = (*(setting.name for setting in (*ROUTE, *TARGET)), "fallbacks")
_SECRET: Final = ("egress_password_env", "key_env", "key_file")
_TARGET_KEYS: Final = tuple(setting.name for setting in TARGET)


class _Given(NamedTuple):
    """A value that was given: the layer it is from, its place for error messages, and the rank of its layer."""

    value: Any
    origin: str
    where: str
    rank: int


_Find = Callable[[Setting], _Given | None]


class Row(NamedTuple):
    """One setting (`port`, `routes.azure.upstream`, `keys.alice`), its value with secrets masked, and its layer."""

    name: str
    value: str
    origin: str


class Loaded(NamedTuple):
    """The configuration, and its settings: those of the server, its keys, the default route and the named ones."""

    config: Config
    rows: tuple[Row, ...]
    #: Variables that begin like settings but are not, to report where a server starts.
    unknown: tuple[str, ...] = ()

    @property
    def origins(self) -> dict[str, str]:
        """The layer of each setting."""
        return {row.name: row.origin for row in self.rows}


def load(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path, *, serving: bool = True) -> Loaded:
    """Return the configuration from flags (by setting name), `WIRETAPE_*` and wiretape.toml, or raise `ConfigError`.

    Without `serving`, for commands that only read tapes, no upstream is required and no secret is read.
    """
    known = {name for setting in (*SERVER, *ROUTE, *TARGET) for name in (setting.name, setting.alias)} | {"config"}
    if strangers := set(flags) - known:
        raise LocalError(f"flags that are not settings: {sorted(strangers)}")
    loader = _Loader(flags, environ, cwd, serving=serving)
    config = replace(loader.server(), keys=loader.keys(), routes=loader.routes())
    if serving:
        _check_servable(config)
    rows = sorted(loader.rows.values(), key=lambda row: row.name.startswith("routes."))
    return Loaded(config, tuple(rows), loader.unknown)


class _Loader:
    """One pass over everything that was given, with a row for each value."""

    def __init__(self, flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path, *, serving: bool) -> None:
        """Raise `ConfigError` for a file that cannot be read."""
        chosen = flags.get("config") or environ.get(PREFIX + "CONFIG")
        self.flags, self.environ, self.cwd = flags, environ, cwd
        self._serving = serving
        self.rows: dict[str, Row] = {}
        self.file = _printable(str(chosen or _FILE))
        path = cwd / (chosen or _FILE)
        self.folder = path.parent
        text, self.document = _read_file(path, self.file, required=chosen is not None)
        self.table(self.document, "", [*(setting.name for setting in (*SERVER, *ROUTE, *TARGET)), *_TABLES])
        self.unknown = tuple(_unknown(environ, {*re.findall(r"\w+", text), *map(str, flags.values())}))

    def server(self) -> Config:
        """Return the settings of the whole server."""
        given = {setting: self.top(setting) for setting in SERVER}
        values = {setting.place: found.value for setting, found in given.items() if found and setting.place}
        egress = {setting.name: found for setting, found in given.items() if found and not setting.place}
        if egress:
            values["upstream.egress"] = self._egress(egress)
        if "data" not in values:
            values["data"] = _data_folder(self.environ)
        config: Config = _with_values(Config(data=values["data"]), values)
        self._show("", given, config)
        return config

    def _show(self, prefix: str, given: Mapping[Setting, _Given | None], made: object) -> None:
        """Add a row for each setting; `made` has the values that are no secrets."""
        for setting, found in given.items():
            value = attrgetter(setting.place)(made) if setting.place else found and found.value
            text = "***" if found and setting.name in _SECRET else shown(value)
            self._add(prefix + setting.name, text, found.origin if found else DEFAULT)

    def _add(self, name: str, value: str, origin: str) -> None:
        self.rows[name] = Row(name, value, origin)

    def _egress(self, given: Mapping[str, _Given]) -> Egress:
        proxy, user, variable = (given.get(name) for name in ("egress_proxy", "egress_user", "egress_password_env"))
        if proxy is None:
            raise ConfigError(f"{next(iter(given.values())).where}: needs egress_proxy as well")
        password = ""
        if variable is not None:
            if user is None:
                raise ConfigError(f"{variable.where}: needs egress_user as well")
            if self._serving:
                password = self.secret(variable.where, variable=variable.value).reveal()
        try:
            checked(proxy.value, allow_plain_http=True)
        except UrlError as error:
            raise ConfigError(f"{proxy.where}: {error}") from None
        scheme, host, port = origin_of(proxy.value)
        return Egress(tls=scheme == "https", host=host, port=port, user=user.value if user else None, password=password)

    # -- routes -------------------------------------------------------------------------------------------------------

    def routes(self) -> dict[str, Route]:
        """Return the default route, if there is one, and the named ones in the file's order."""
        document = self.document.get("routes", {})
        tables: dict[str, dict[str, Any]] = {}
        for name, value in self.table(document, "routes", document).items():
            if not _ROUTE_NAME.fullmatch(name):
                raise ConfigError(
                    f"{self.file}: routes.{_printable(name)}: "
                    "a route's name must consist of a-z, 0-9, - and _, and not be v1 or wiretape"
                )
            tables[name] = self.table(value, f"routes.{name}", _ROUTE_KEYS)
        routes = {name: self._named_route(name, table) for name, table in tables.items()}
        for name, table in tables.items():
            if "fallbacks" in table:
                routes[name] = self._with_fallbacks(routes[name], table["fallbacks"], routes)
        default = self._default_route(routes)
        return routes if default is None else {"": default, **routes}

    def _named_route(self, name: str, table: Mapping[str, Any]) -> Route:
        prefix = f"routes.{name}."
        inside = partial(self.inside, table, prefix)

        def find(setting: Setting) -> _Given | None:
            if not setting.shared:
                return inside(setting)
            return self.above(setting) or inside(setting) or self.inside(self.document, "", setting)

        return self._route(name, self._target(inside, prefix), find, prefix)

    def _default_route(self, routes: Mapping[str, Route]) -> Route | None:
        upstream = self.top(TARGET[0])
        if upstream is None:
            stray = [found.where for setting in TARGET[1:] if (found := self.top(setting))]
            stray += [f"{self.file}: fallbacks"] if "fallbacks" in self.document else []
            if stray:
                raise ConfigError(f"{stray[0]}: needs an upstream as well")
            return None
        lowest = self.inside(self.document, "", TARGET[0]) or self.above(TARGET[0], flags=False) or upstream

        def find(setting: Setting) -> _Given | None:
            given = self.top(setting)
            # Below the upstream's layer a setting counts only if it cannot have been meant for another upstream.
            return given if given and (given.rank >= upstream.rank or lowest.rank == upstream.rank) else None

        route = self._route("", self._target(find, ""), self.top, "")
        if upstream.rank == 1 and "fallbacks" in self.document:
            return self._with_fallbacks(route, self.document["fallbacks"], routes)
        return route

    def _route(self, name: str, target: Target, find: _Find, prefix: str) -> Route:
        given = {setting: find(setting) for setting in ROUTE}
        values = {setting.place: found.value for setting, found in given.items() if found}
        route: Route = _with_values(Route(name=name, targets=(target,)), values)
        self._show(prefix, given, route)
        return route

    def _target(self, find: _Find, prefix: str, *, fallback: bool = False) -> Target:
        found = {setting: each for setting in TARGET if (each := find(setting))}
        given = {setting.name: each for setting, each in found.items()}
        if "upstream" not in given:
            raise ConfigError(f"{self.file}: {prefix}upstream: is missing")
        plain = given.get("allow_plain_http")
        try:
            url = checked(given["upstream"].value, allow_plain_http=bool(plain and plain.value))
        except UrlError as error:
            raise ConfigError(f"{given['upstream'].where}: {error}") from None
        if "key_env" in given and "key_file" in given:
            raise ConfigError(f"{given['key_file'].where}: there is a key_env already")
        key = None
        if self._serving and (named := given.get("key_env") or given.get("key_file")):
            file = None if "key_env" in given else named.value
            key = self.secret(named.where, variable=str(named.value), file=file)
        host, speaks = origin_of(url)[1], given.get("speaks")
        bare = host.endswith(_ANTHROPIC) or (speaks is not None and speaks.value == "messages")
        values: dict[str, Any] = {
            "key_header": "api-key" if host.endswith(_AZURE) else "x-api-key" if bare else "authorization"
        }
        values |= {setting.place: each.value for setting, each in found.items() if setting.place}
        target = Target(name=plain_name(url), url=url, key=key, **values)
        if not fallback:
            self._show(prefix, found, target)
        return target

    def _with_fallbacks(self, route: Route, value: Any, routes: Mapping[str, Route]) -> Route:
        prefix = f"routes.{route.name}." if route.name else ""
        allowed = (
            f"{self.file}: {prefix}fallbacks: must be a list of route names, URLs or tables like "
            "{ upstream = URL, key_env = VARIABLE }"
        )
        if not isinstance(value, list):
            raise ConfigError(allowed)
        entries: list[Any] = value  # pyright: ignore[reportUnknownVariableType] - checked below
        targets = list(route.targets)
        for number, entry in enumerate(entries):
            name, explicit = f"{prefix}fallbacks[{number}]", False
            if isinstance(entry, str) and entry in routes and entry != route.name:
                target = routes[entry].targets[0]
            elif isinstance(entry, dict) or (isinstance(entry, str) and "://" in entry):
                table = {"upstream": entry} if isinstance(entry, str) else self.table(entry, name, _TARGET_KEYS)
                explicit = "caller_key" in table
                target = self._target(partial(self.inside, table, f"{name}."), f"{name}.", fallback=True)
            elif isinstance(entry, str):
                others = ", ".join(sorted(routes.keys() - {route.name})) or "none"
                wrong = f"there is no other route {plain_word(entry, 'of this name')} (other routes: {others})"
                raise ConfigError(f"{self.file}: {name}: {wrong}")
            else:
                raise ConfigError(allowed)
            # A caller's key was meant for the first upstream. Another host gets it only if its owner says so.
            same_host = origin_of(target.url) == origin_of(route.targets[0].url)
            targets.append(target if explicit or same_host else replace(target, caller_key=False))
        self._add(f"{prefix}fallbacks", ", ".join(target.name for target in targets[1:]), self.file)
        return replace(route, targets=tuple(targets))

    # -- Wiretape's own keys ------------------------------------------------------------------------------------------

    def keys(self) -> tuple[Key, ...]:
        """Return the keys from WIRETAPE_KEY and `[keys]`; none unless serving."""
        keys: list[Key] = []
        if self.environ.get(_OWN_KEY):
            self._add("keys.default", "***", _OWN_KEY)
            if self._serving:
                keys.append(Key("default", _long(_OWN_KEY, self.secret(_OWN_KEY, variable=_OWN_KEY))))
        document = self.document.get("keys", {})
        for name, source in self.table(document, "keys", document).items():
            where = f"{self.file}: keys.{_printable(name)}"
            if not _KEY_NAME.fullmatch(name) or f"keys.{name}" in self.rows:
                raise ConfigError(f"{where}: a key's name must be short, unique, and of letters, digits and - _ .")
            self._add(f"keys.{name}", "***", self.file)
            match source:
                case {"env": str(variable), **rest} if not rest:
                    file = None
                case {"file": str(path), **rest} if not rest and path and "\0" not in path:
                    variable, file = "", self.path(Path(path), self.folder)
                case _:
                    raise ConfigError(
                        f"{where}: must be {{ env = VARIABLE }} or {{ file = PATH }}, never the key itself"
                    )
            if self._serving:
                keys.append(Key(name, _long(where, self.secret(where, variable=variable, file=file))))
        if len({key.secret for key in keys}) < len(keys):
            raise ConfigError(f"{self.file}: keys: two names have the same key")
        return tuple(keys)

    # -- the layers ----------------------------------------------------------------------------------------------------

    def above(self, setting: Setting, *, flags: bool = True) -> _Given | None:
        """Return the value from a flag (unless excluded) or the environment."""
        for name in (setting.alias, setting.name):
            if flags and name and self.flags.get(name) is not None:
                value = self._read(setting, self.flags[name], setting.flag, self.cwd)
                return _Given(value, setting.flag, setting.flag, 3)
        variable = setting.environment
        given = self.environ.get(variable, "")
        if given and not _is_of_service(variable, given):
            return _Given(self._read(setting, given, variable, self.cwd), variable, variable, 2)
        return None

    def inside(self, table: Mapping[str, Any], prefix: str, setting: Setting) -> _Given | None:
        """Return the value from a table of the file that is named `prefix`."""
        if setting.name not in table:
            return None
        raw, where = table[setting.name], f"{self.file}: {prefix}{setting.name}"
        if type(raw) not in setting.kind.toml:
            raise ConfigError(f"{where}: must be {setting.kind.allowed}")
        return _Given(self._read(setting, raw, where, self.folder), self.file, where, 1)

    def top(self, setting: Setting) -> _Given | None:
        """Return the value from the highest layer that has one."""
        return self.above(setting) or self.inside(self.document, "", setting)

    def table(self, value: Any, name: str, known: Iterable[str]) -> dict[str, Any]:
        """Return a table of the file, or raise `ConfigError` if it has unknown keys."""
        if not isinstance(value, dict):
            raise ConfigError(f"{self.file}: {_printable(name)}: must be a table")
        found: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType] - tomllib's keys are texts
        for key in found.keys() - set(known):
            similar = difflib.get_close_matches(key, sorted(known), 1)
            hint = f"did you mean {similar[0]}?" if similar else f"known are {', '.join(sorted(known))}"
            place = f"{name}.{key}" if name else key
            raise ConfigError(f"Unknown setting {_printable(place)} in {self.file} ({hint})")
        return found

    def secret(self, where: str, *, variable: str = "", file: Path | None = None) -> Secret:
        """Return the secret in a variable or a file."""
        try:
            return from_environment(variable, self.environ) if file is None else from_file(file)
        except SecretError as error:
            raise ConfigError(f"{where}: {error}") from None

    def path(self, path: Path, base: Path) -> Path:
        """Return an absolute path, with ~ expanded."""
        if path.parts[:1] == ("~",) and self.environ.get("HOME"):
            path = Path(self.environ["HOME"], *path.parts[1:])
        return base / path

    def _read(self, setting: Setting, raw: Any, where: str, base: Path) -> Any:
        try:
            value = setting.kind.read(raw)
        except (ValueError, OverflowError):
            raise ConfigError(f"{where}: must be {setting.kind.allowed}") from None
        return self.path(value, base) if isinstance(value, Path) else value


def _long(where: str, secret: Secret) -> Secret:
    if len(secret.reveal()) < KEY_CHARS_MIN:
        raise ConfigError(f"{where}: a key of Wiretape's own has at least {KEY_CHARS_MIN} characters; {_fresh_key()}")
    return secret


def _fresh_key() -> str:
    return f"here is a fresh one: export {_OWN_KEY}={secrets.token_urlsafe(32)}"


def _check_servable(config: Config) -> None:
    if not config.routes:
        raise ConfigError(f"no upstream: pass --upstream URL, or set {PREFIX}UPSTREAM or `upstream` in wiretape.toml")
    if not is_loopback(config.host) and not config.keys:
        raise ConfigError(f"host: callers on other machines need a Wiretape key, and none is set; {_fresh_key()}")
    if config.store and config.durability == "none":
        raise ConfigError("store: needs a data folder, from which tapes are shipped (durability = none)")
    if config.workers > 1 and sys.platform != "linux":
        raise ConfigError("workers: need Linux, where the sockets of one port share its connections evenly")
    if config.workers > 1 and config.durability == "none":
        raise ConfigError("workers: need a data folder, where they read each other's tapes (durability = none)")
    if config.memory_max_bytes and config.memory_max_bytes < config.workers * MEMORY_MAX_BYTES_MIN:
        raise ConfigError(f"memory_max_bytes: must be at least {MEMORY_MAX_BYTES_MIN} for each of the workers")
    for name, route in config.routes.items():
        for target in route.targets:
            _, host, port = origin_of(target.url)
            if port == config.port and is_loopback(host) and (config.host in _EVERYWHERE or is_loopback(config.host)):
                raise ConfigError(f"{f'routes.{name}.' if name else ''}upstream: is this server itself")


def _data_folder(environ: Mapping[str, str]) -> Path:
    """Return the platform's folder for data (XDG; on macOS Apple's)."""
    home, xdg = environ.get("HOME"), environ.get("XDG_DATA_HOME")
    if xdg and Path(xdg).is_absolute() and sys.platform != "darwin":
        return Path(xdg) / "wiretape"
    if not home:
        raise ConfigError(f"data: HOME is not set; pass --data DIR or set {PREFIX}DATA")
    if sys.platform == "darwin":
        return Path(home) / "Library" / "Application Support" / "wiretape"
    return Path(home) / ".local" / "share" / "wiretape"


def _with_values(base: Any, values: Mapping[str, Any]) -> Any:
    """Return a Config or Route with each value at its place."""
    own = {place: value for place, value in values.items() if "." not in place}
    for head in {place.partition(".")[0] for place in values if "." in place}:
        inner = {place.partition(".")[2]: value for place, value in values.items() if place.startswith(head + ".")}
        own[head] = _with_values(getattr(base, head), inner)
    return replace(base, **own)


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
            parts: tuple[str | tuple[str, str], ...] = value  # pyright: ignore[reportUnknownVariableType] - all are
            return ", ".join(" = ".join(part) if isinstance(part, tuple) else str(part) for part in parts)
        case _:
            return str(value)


def _printable(text: str) -> str:
    """Return a user's own name for use in a message: one line, and short."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _NAME_CHARS_MAX else text[:_NAME_CHARS_MAX] + "..."


def _read_file(path: Path, name: str, *, required: bool) -> tuple[str, dict[str, Any]]:
    """Return the text of the file and its content, nothing for a file that may be missing."""
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except FileNotFoundError:
        if required:
            raise ConfigError(f"{name}: no such file") from None
        return "", {}
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: not TOML: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        # The rest of the message may quote the file, and that may contain a key.
        place = str(error).rpartition("(")[2].rstrip(")")
        raise ConfigError(f"{name}: not TOML {place if place.startswith('at ') else ''}") from None
    except (ValueError, RecursionError):  # limits of Python that tomllib does not catch
        raise ConfigError(f"{name}: a number is too long, or brackets are nested too deeply") from None


def _unknown(environ: Mapping[str, str], named: set[str]) -> Iterator[str]:
    """Yield variables that are not settings; raise `ConfigError` for one that is nearly a setting."""
    known = {setting.environment for setting in (*SERVER, *ROUTE, *TARGET)} | {PREFIX + "CONFIG", _OWN_KEY}
    named |= {environ[name] for name in known if name in environ}  # as WIRETAPE_UPSTREAM_KEY_ENV names one
    for name in sorted({name for name in environ if name.startswith(PREFIX)} - known - named - _OF_TESTS):
        if _is_of_service(name, environ[name]):
            continue
        if similar := difflib.get_close_matches(name, known, 1, _TYPO):
            raise ConfigError(f"Unknown setting {_printable(name)} (did you mean {similar[0]}?)")
        yield _printable(name)


def _is_of_service(name: str, value: str) -> bool:
    found = _SERVICE.fullmatch(name)
    return found is not None and (found["setting"] is None or _SERVICE_PORT.fullmatch(value) is not None)
