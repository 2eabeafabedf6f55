"""What all verbs of the command line share: exit codes, an error in one line, the options that they have in common"""

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from .config_load import Loaded

__all__ = [
    "BAD_USAGE",
    "CANNOT_START",
    "FOUND_WRONG",
    "INTERRUPTED",
    "AsJson",
    "ConfigFile",
    "DataFolder",
    "FailedError",
    "line_of",
    "loaded_from",
    "print_json",
    "root_of",
    "told",
]

FOUND_WRONG: Final = 1
BAD_USAGE: Final = 2
CANNOT_START: Final = 3
INTERRUPTED: Final = 130

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


def loaded_from(
    config: str | None, context: typer.Context | None = None, *, serving: bool = True, **flags: str | None
) -> "Loaded":
    """The configuration of this call: flags, environment, file."""
    from .cli_flags import UnknownOptionError, flags_of
    from .config import ConfigError
    from .config_load import load

    try:
        more = flags_of(context.args) if context is not None else {}
        return load({**flags, **more, "config": config}, os.environ, Path.cwd(), serving=serving)
    except (ConfigError, UnknownOptionError) as error:
        raise FailedError(str(error), BAD_USAGE) from error


def root_of(data: str | None, config: str | None) -> Path:
    """The data folder; readers need nothing else of the configuration."""
    root = Path(data) if data else loaded_from(config, serving=False).config.data
    if not root.is_dir():
        raise FailedError(f"there is no data folder {root}: nothing was taped there yet", FOUND_WRONG)
    return root


@contextmanager
def told() -> Generator[None]:
    """What our own errors say becomes one line with its exit code."""
    from wiretape.events.errors import LocalError, WiretapeError

    try:
        yield
    except BaseException as raised:
        error = _alone(raised)
        if isinstance(error, KeyboardInterrupt | OSError):
            raise error from None
        if not isinstance(error, WiretapeError) or isinstance(error, LocalError):
            raise
        from .cli_tapes import NotFoundError

        raise FailedError(str(error), FOUND_WRONG if isinstance(error, NotFoundError) else CANNOT_START) from error


def _alone(error: BaseException) -> BaseException:
    """What a nursery wrapped although it was alone."""
    match error:
        case BaseExceptionGroup(exceptions=[inner]):
            return _alone(inner)
        case _:
            return error


def line_of(value: Mapping[str, Any]) -> str:
    """JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def print_json(value: Any) -> None:
    """JSON that a person can read too."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
