"""The layers of the configuration: flags over environment over wiretape.toml, each value with its origin"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from .model import ConfigError
from .secrets import Secret, SecretError, from_environment, from_file
from .table import PREFIX, ROUTE, SERVER, TARGET, Setting

__all__ = ["DEFAULT", "FILE", "Given", "Layers", "environment_secret", "file_secret", "line", "open_layers"]

FILE: Final = "wiretape.toml"
DEFAULT: Final = "default"

#: What stands at the top of the file besides settings.
_TABLES: Final = ("fallbacks", "keys", "routes")
_NAME_CHARS_MAX: Final = 60
#: How much of a variable's name must be that of a setting for it to be a typo; below, it may be meant for another.
_TYPO: Final = 0.87
#: What Kubernetes tells every container of a service `wiretape`, or `wiretape-NAME`, whether or not it asks.
_SERVICE: Final = re.compile(
    PREFIX + r"(?:[A-Z0-9_]+?_)??(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?"
    r"|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?|(?P<also_ours>PORT))"
)
_SERVICE_PORT: Final = re.compile(r"(?:tcp|udp|sctp)://[0-9A-Fa-f.:\[\]]+:[0-9]+")
#: Where the tests of this repository look for captures, and how long they go on.
_OF_TESTS: Final = frozenset({PREFIX + "CORPUS", PREFIX + "LAWS"})


class Given(NamedTuple):
    """A value, where it came from, and how far up."""

    value: Any
    origin: str
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """All that was given, read but not yet put together."""

    document: Mapping[str, Any]
    #: The file as its owner calls it, and its folder, from which its paths count.
    file: str
    folder: Path
    environ: Mapping[str, str]
    flags: Mapping[str, Any]
    cwd: Path
    #: Variables that begin like settings and are none.
    unknown: tuple[str, ...] = ()

    def above(self, setting: Setting, *, flags: bool = True) -> Given | None:
        """From a flag (unless they do not matter) or the environment."""
        for name in (setting.alias, setting.name):
            if flags and name and self.flags.get(name) is not None:
                return Given(self._read(setting, self.flags[name], setting.flag, self.cwd), setting.flag, 3)
        text = self.environ.get(setting.environment, "")
        if text and not _is_of_service(setting.environment, text):
            value = self._read(setting, text, setting.environment, self.cwd)
            return Given(value, setting.environment, 2)
        return None

    def inside(self, table: Mapping[str, Any], setting: Setting, prefix: str = "") -> Given | None:
        """From a table of the file; `prefix` is how its owner would name the table."""
        if setting.name not in table:
            return None
        raw, where = table[setting.name], f"{self.file}: {prefix}{setting.name}"
        if type(raw) not in setting.kind.toml:
            raise ConfigError(f"{where}: must be {setting.kind.allowed}")
        return Given(self._read(setting, raw, where, self.folder), self.file, 1)

    def top(self, setting: Setting) -> Given | None:
        """From the highest layer that has it."""
        return self.above(setting) or self.inside(self.document, setting)

    def table(self, value: Any, name: str, known: Iterable[str]) -> dict[str, Any]:
        """A table of the file that holds nothing unknown."""
        if not isinstance(value, dict):
            raise ConfigError(f"{self.file}: {line(name)}: must be a table")
        found: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType] - tomllib's keys are texts
        known = sorted(known)
        for key in found:
            if key not in known:
                meant = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean `{meant[0]}`?" if meant else f"known are {', '.join(known)}"
                place = f"{name}.{key}" if name else key
                raise ConfigError(f"{self.file}: {line(place)} is no setting; {hint}")
        return found

    def _read(self, setting: Setting, raw: Any, where: str, base: Path) -> Any:
        try:
            value = setting.kind.read(raw)
        except (ValueError, OverflowError):
            raise ConfigError(f"{where}: must be {setting.kind.allowed}") from None
        return self.path(value, base) if isinstance(value, Path) else value

    def path(self, path: Path, base: Path) -> Path:
        """A path as its writer meant it."""
        if path.parts[:1] == ("~",) and self.environ.get("HOME"):
            path = Path(self.environ["HOME"], *path.parts[1:])
        return base / path


def open_layers(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path) -> Layers:
    """The layers as they are; raises ConfigError for a file that is none, and for a variable that is a typo."""
    chosen = flags.get("config") or environ.get(PREFIX + "CONFIG")
    path = cwd / (chosen or FILE)
    content = _content(path, required=chosen is not None)
    try:
        document = tomllib.loads(content.decode())
    except tomllib.TOMLDecodeError as exc:
        # The rest of the message may quote the file, and that may hold a key.
        place = str(exc).rpartition("(")[2].rstrip(")")
        raise ConfigError(f"{line(str(chosen or FILE))}: not TOML {place if place.startswith('at ') else ''}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{line(str(chosen or FILE))}: not TOML: not UTF-8") from None
    except (ValueError, RecursionError):  # tomllib's bounds are Python's own
        raise ConfigError(f"{line(str(chosen or FILE))}: a number too long, or too many brackets") from None
    layers = Layers(
        document=document,
        file=line(str(chosen or FILE)),
        folder=path.parent,
        environ=environ,
        flags=flags,
        cwd=cwd,
    )
    layers.table(document, "", [*(setting.name for setting in (*SERVER, *ROUTE, *TARGET)), *_TABLES])
    return replace(layers, unknown=tuple(_unknown(environ, {*_texts(document), *map(str, flags.values())})))


def line(text: str) -> str:
    """A name of the user's own inside a message: one line, and short."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _NAME_CHARS_MAX else text[:_NAME_CHARS_MAX] + "..."


def _content(path: Path, *, required: bool) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if required:
            raise ConfigError(f"{line(path.name)}: there is no such file") from None
        return b""
    except OSError as exc:
        raise ConfigError(f"{line(path.name)}: cannot be read: {exc.strerror}") from None


def _texts(document: Mapping[str, Any]) -> Iterator[str]:
    """All texts of a document, however deep; among them the variables that it names."""
    left: list[Any] = [document]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value


def _unknown(environ: Mapping[str, str], named: set[str]) -> Iterator[str]:
    """Variables that nobody here reads; raises ConfigError for one that is nearly a setting."""
    known = {setting.environment for setting in (*SERVER, *ROUTE, *TARGET)} | {PREFIX + "CONFIG", PREFIX + "KEY"}
    named |= {environ[name] for name in known if name in environ}  # as WIRETAPE_UPSTREAM_KEY_ENV names one
    for name in sorted({name for name in environ if name.startswith(PREFIX)} - known - named - _OF_TESTS):
        if _is_of_service(name, environ[name]):
            continue
        meant = difflib.get_close_matches(name, known, 1, _TYPO)
        if meant:
            raise ConfigError(f"{line(name)} is no setting; did you mean {meant[0]}?")
        yield line(name)


def _is_of_service(name: str, text: str) -> bool:
    found = _SERVICE.fullmatch(name)
    return found is not None and (found["also_ours"] is None or _SERVICE_PORT.fullmatch(text) is not None)


def environment_secret(where: str, name: str, environ: Mapping[str, str]) -> Secret:
    """Return the secret in a variable, or raise `ConfigError`."""
    try:
        return from_environment(name, environ)
    except SecretError as error:
        raise ConfigError(f"{where}: {error}") from None


def file_secret(where: str, path: Path) -> Secret:
    """Return the secret in a file, or raise `ConfigError`."""
    try:
        return from_file(path)
    except SecretError as error:
        raise ConfigError(f"{where}: {error}") from None
