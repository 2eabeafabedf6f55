"""What all verbs of the command line share: exit codes, an error in one line, the options that they have in common"""

import io
import json
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
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
    "FailedError",
    "announce",
    "line_of",
    "loaded_from",
    "open_streams",
    "print_json",
    "root_of",
    "settle",
    "told",
]

FOUND_WRONG: Final = 1
BAD_USAGE: Final = 2
CANNOT_START: Final = 3
INTERRUPTED: Final = 130

_STDOUT: Final = 1
_STDERR: Final = 2

DataFolder = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Data folder.", show_default=False)]
ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="FILE", help="Instead of wiretape.toml in the working folder.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


class FailedError(Exception):
    """One line for stderr, and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def open_streams() -> None:
    """stdin, stdout and stderr are there, and what their encoding lacks is written as an escape.

    One that was closed at the start is nowhere: its number is given to the next file that is opened, perhaps a tape.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdout = sys.stdout or os.fdopen(_STDOUT, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def announce(text: str) -> bool:
    """What a server says on stdout before it serves; False where nobody can have read it, which stops no server."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()  # whoever reads us through a pipe waits for the first line
    except OSError:
        settle()
        return False
    return sys.__stdout__ is not None


def settle() -> None:
    """stdout has all that was written to it, or whoever read it is gone and the rest goes nowhere."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def loaded_from(
    config: str | None, context: typer.Context | None = None, *, serving: bool = True, **flags: str | None
) -> "Loaded":
    """The configuration of this call: flags, environment, file. Who takes settings as options hears of strangers."""
    from ..config.load import load
    from ..config.model import ConfigError
    from .flags import UnknownOptionError, flags_of

    try:
        more = flags_of(context.args) if context is not None else {}
        loaded = load({**flags, **more, "config": config}, os.environ, Path.cwd(), serving=serving)
    except (ConfigError, UnknownOptionError) as error:
        raise FailedError(str(error), BAD_USAGE) from error
    if context is not None and loaded.unknown:
        typer.echo(f"wiretape: no settings, passed over: {', '.join(loaded.unknown)}", err=True)
    return loaded


def root_of(data: str | None, config: str | None) -> Path:
    """The data folder; readers need nothing else of the configuration."""
    root = Path(data) if data else loaded_from(config, serving=False).config.data
    if not root.is_dir():
        raise FailedError(f"there is no data folder {root}: nothing was taped there yet", FOUND_WRONG)
    return root


@contextmanager
def told() -> Generator[None]:
    """What our own errors say becomes one line with its exit code."""
    from wiretape.events.core.errors import LocalError, WiretapeError

    try:
        yield
    except BaseException as raised:
        error = _alone(raised)
        if isinstance(error, KeyboardInterrupt | OSError):
            raise error from None
        if not isinstance(error, WiretapeError) or isinstance(error, LocalError):
            raise
        from .tapes import NotFoundError

        raise FailedError(str(error), FOUND_WRONG if isinstance(error, NotFoundError) else CANNOT_START) from error


def _alone(error: BaseException) -> BaseException:
    """What a nursery wrapped although it was alone."""
    match error:
        case BaseExceptionGroup(exceptions=[inner]):
            return _alone(inner)
        case _:
            return error


def line_of(value: Mapping[str, Any]) -> str:
    """JSON on one line, for stdout."""
    return _json(value, None)


def print_json(value: Any) -> None:
    """JSON that a person can read too."""
    typer.echo(_json(value, 2))


def _json(value: Any, indent: int | None) -> str:
    """All escaped where stdout lacks a letter, or a text has half of one: JSON has no other way to say it."""
    said = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        said.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return said
