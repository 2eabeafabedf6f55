"""Shared parts of all verbs: exit codes, common options, settings as options, and errors in one line."""

import difflib
import io
import json
import os
import re
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from ..config.load import Loaded

__all__ = [
    "BAD_USAGE",
    "CANNOT_START",
    "FOUND_WRONG",
    "INTERRUPTED",
    "AsJson",
    "ConfigFile",
    "DataFolder",
    "Database",
    "FailedError",
    "TapeName",
    "TapeNames",
    "announce",
    "echo",
    "escaped",
    "line_of",
    "loaded_from",
    "one_line_errors",
    "open_streams",
    "print_json",
    "root_of",
    "settle",
]

FOUND_WRONG: Final = 1
BAD_USAGE: Final = 2
CANNOT_START: Final = 3
INTERRUPTED: Final = 130

#: What moves the cursor, reverses the text, or cannot be seen: C0, C1, bidi marks, zero width, tags, half surrogates.
_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_STDOUT: Final = 1
_STDERR: Final = 2
_FILE: Final = typer.Option(
    "--config", metavar="FILE", help="Instead of wiretape.toml in the working folder.", show_default=False
)


def _tape_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return ids of streams for the completion of a shell, which completes files itself."""
    with suppress(FailedError, OSError):
        root = root_of(ctx.params.get("data"), ctx.params.get("config"))
        return [path.stem for path in root.rglob("*.tape") if path.name.startswith(incomplete)]
    return []


_ANY_TAPE: Final = "A file, a folder, or an id of a stream or a run, or its beginning."

TapeName = Annotated[
    str, typer.Argument(metavar="TAPE", help=_ANY_TAPE, autocompletion=_tape_names, show_default=False)
]
TapeNames = Annotated[list[str], typer.Argument(metavar="TAPE...", help=_ANY_TAPE, autocompletion=_tape_names)]
DataFolder = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Data folder.", show_default=False)]
Database = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="The streams of all machines in this database.", show_default=False),
]
ConfigFile = Annotated[str | None, _FILE]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


class FailedError(Exception):
    """An error to report in one line on stderr, and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def open_streams() -> None:
    """Reopen closed standard streams and escape characters that their encoding lacks.

    Without this the number of a closed one would be given to the next file opened, perhaps a tape.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdout = sys.stdout or os.fdopen(_STDOUT, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def escaped(text: str) -> str:
    """Return a text, or JSON, that cannot control a terminal: other controls than LF and tab become \\uXXXX."""
    return _CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1].replace("\x7f", "\\u007f"), text)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text, which may be anyone's, to stdout or stderr."""
    typer.echo(escaped(text), err=err, nl=nl)


def announce(text: str) -> bool:
    """Write to stdout at once, for readers of a pipe. Return False if there is no reader, which stops no server."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        settle()
        return False
    return sys.__stdout__ is not None


def settle() -> None:
    """Flush stdout; if its reader has gone, discard the rest."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def loaded_from(
    config: str | None, context: typer.Context | None = None, *, serving: bool = True, **flags: str | None
) -> "Loaded":
    """Return the configuration from flags, environment and file. With a context, unknown options are settings."""
    from ..config.load import load
    from ..config.model import ConfigError

    more = _settings_in(context.args) if context is not None else {}
    try:
        loaded = load({**flags, **more, "config": config}, os.environ, Path.cwd(), serving=serving)
    except ConfigError as error:
        raise FailedError(str(error), BAD_USAGE) from error
    if context is not None and loaded.unknown:
        echo(f"wiretape: ignored unknown variables: {', '.join(loaded.unknown)}", err=True)
    return loaded


def _settings_in(arguments: Iterable[str]) -> dict[str, str]:
    """Return the settings among the arguments that a command does not define: `--idle-s 60` is `idle_s = 60`."""
    from ..config.model import ROUTE, SERVER, TARGET

    known = {setting.flag: setting.alias or setting.name for setting in (*SERVER, *ROUTE, *TARGET)}
    flags: dict[str, str] = {}
    waiting = iter(arguments)
    for argument in waiting:
        option, given, value = argument.partition("=")
        if not option.startswith("-"):
            raise FailedError(f"unexpected argument {argument[:80]!r}", BAD_USAGE)
        if option not in known:
            similar = difflib.get_close_matches(option, known, 1)
            hint = f" (did you mean {similar[0]}?)" if similar else ""
            raise FailedError(f"Unknown option {option[:80]}{hint}", BAD_USAGE)
        if not given:
            value = next(waiting, "")
        if not value:
            raise FailedError(f"{option} needs a value", BAD_USAGE)
        flags[known[option]] = value
    return flags


def root_of(data: str | None, config: str | None) -> Path:
    """Return the data folder, all that reading verbs need of the configuration."""
    root = Path(data) if data else loaded_from(config, serving=False).config.data
    if not root.is_dir():
        raise FailedError(f"No data folder {root}: nothing was recorded there (--data names another)", CANNOT_START)
    return root


@contextmanager
def one_line_errors() -> Generator[None]:
    """Turn our own errors, alone in the group of a nursery or not, into `FailedError`."""
    from wiretape.events.core.errors import LocalError, WiretapeError

    from ..config.model import ConfigError

    try:
        yield
    except BaseException as raised:
        error = _unwrapped(raised)
        if isinstance(error, KeyboardInterrupt | OSError | FailedError):
            raise error from None
        if not isinstance(error, WiretapeError) or isinstance(error, LocalError):
            raise
        raise FailedError(str(error), BAD_USAGE if isinstance(error, ConfigError) else CANNOT_START) from error


def _unwrapped(error: BaseException) -> BaseException:
    match error:
        case BaseExceptionGroup(exceptions=[inner]):
            return _unwrapped(inner)
        case _:
            return error


def print_json(value: Any) -> None:
    """Print indented JSON."""
    echo(line_of(value, 2))


def line_of(value: Any, indent: int | None = None) -> str:
    """Return JSON for stdout, escaped if that lacks a character or a text contains half of a surrogate pair."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text
