"""The layers of the configuration: flags over environment over wiretape.toml, each value with its origin."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from .kinds import PREFIX, Setting
from .model import ROUTE, SERVER, TARGET, ConfigError
from .secrets import Secret, SecretError, from_environment, from_file

__all__ = ["DEFAULT", "OWN_KEY", "Given", "Layers", "printable"]

DEFAULT: Final = "default"
OWN_KEY: Final = PREFIX + "KEY"

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


class Given(NamedTuple):
    """A value that was given: the layer it is from, its place for error messages, and the rank of its layer."""

    value: Any
    origin: str
    where: str
    rank: int


class Layers:
    """Everything that was given, before it is combined. Raises `ConfigError` for a file that cannot be read."""

    def __init__(self, flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path) -> None:
        chosen = flags.get("config") or environ.get(PREFIX + "CONFIG")
        self.flags, self.environ, self.cwd = flags, environ, cwd
        self.file = printable(str(chosen or _FILE))
        path = cwd / (chosen or _FILE)
        self.folder = path.parent
        content = _content(path, required=chosen is not None)
        self.document = _document(content, self.file)
        self.table(self.document, "", [*(setting.name for setting in (*SERVER, *ROUTE, *TARGET)), *_TABLES])
        #: Variables that begin like settings but are not.
        self.unknown = tuple(_unknown(environ, {*re.findall(r"\w+", content), *map(str, flags.values())}))

    def above(self, setting: Setting, *, flags: bool = True) -> Given | None:
        """Return the value from a flag (unless excluded) or the environment."""
        for name in (setting.alias, setting.name):
            if flags and name and self.flags.get(name) is not None:
                value = self._read(setting, self.flags[name], setting.flag, self.cwd)
                return Given(value, setting.flag, setting.flag, 3)
        variable = setting.environment
        given = self.environ.get(variable, "")
        if given and not _is_of_service(variable, given):
            return Given(self._read(setting, given, variable, self.cwd), variable, variable, 2)
        return None

    def inside(self, table: Mapping[str, Any], setting: Setting, prefix: str = "") -> Given | None:
        """Return the value from a table of the file that is named `prefix`."""
        if setting.name not in table:
            return None
        raw, where = table[setting.name], f"{self.file}: {prefix}{setting.name}"
        if type(raw) not in setting.kind.toml:
            raise ConfigError(f"{where}: must be {setting.kind.allowed}")
        return Given(self._read(setting, raw, where, self.folder), self.file, where, 1)

    def top(self, setting: Setting) -> Given | None:
        """Return the value from the highest layer that has one."""
        return self.above(setting) or self.inside(self.document, setting)

    def table(self, value: Any, name: str, known: Iterable[str]) -> dict[str, Any]:
        """Return a table of the file, or raise `ConfigError` if it has unknown keys."""
        if not isinstance(value, dict):
            raise ConfigError(f"{self.file}: {printable(name)}: must be a table")
        found: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType] - tomllib's keys are texts
        for key in found.keys() - set(known):
            similar = difflib.get_close_matches(key, sorted(known), 1)
            hint = f"did you mean {similar[0]}?" if similar else f"known are {', '.join(sorted(known))}"
            place = f"{name}.{key}" if name else key
            raise ConfigError(f"Unknown setting {printable(place)} in {self.file} ({hint})")
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


def printable(text: str) -> str:
    """Return a user's own name for use in a message: one line, and short."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _NAME_CHARS_MAX else text[:_NAME_CHARS_MAX] + "..."


def _content(path: Path, *, required: bool) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if required:
            raise ConfigError(f"{printable(path.name)}: no such file") from None
        return ""
    except OSError as error:
        raise ConfigError(f"{printable(path.name)}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{printable(path.name)}: not TOML: not UTF-8") from None


def _document(content: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        # The rest of the message may quote the file, and that may contain a key.
        place = str(error).rpartition("(")[2].rstrip(")")
        raise ConfigError(f"{name}: not TOML {place if place.startswith('at ') else ''}") from None
    except (ValueError, RecursionError):  # limits of Python that tomllib does not catch
        raise ConfigError(f"{name}: a number is too long, or brackets are nested too deeply") from None


def _unknown(environ: Mapping[str, str], named: set[str]) -> Iterator[str]:
    """Yield variables that are not settings; raise `ConfigError` for one that is nearly a setting."""
    known = {setting.environment for setting in (*SERVER, *ROUTE, *TARGET)} | {PREFIX + "CONFIG", OWN_KEY}
    named |= {environ[name] for name in known if name in environ}  # as WIRETAPE_UPSTREAM_KEY_ENV names one
    for name in sorted({name for name in environ if name.startswith(PREFIX)} - known - named - _OF_TESTS):
        if _is_of_service(name, environ[name]):
            continue
        similar = difflib.get_close_matches(name, known, 1, _TYPO)
        if similar:
            raise ConfigError(f"Unknown setting {printable(name)} (did you mean {similar[0]}?)")
        yield printable(name)


def _is_of_service(name: str, value: str) -> bool:
    found = _SERVICE.fullmatch(name)
    return found is not None and (found["setting"] is None or _SERVICE_PORT.fullmatch(value) is not None)
