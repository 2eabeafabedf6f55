"""`wiretape record`: a command runs behind a proxy, and what it was told becomes one sealed tape"""

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wiretape.proxy.cli.common import BAD_USAGE, FOUND_WRONG, ConfigFile, FailedError, loaded_from, told

from .seal import DetectorName, load_detector

if TYPE_CHECKING:
    from wiretape.events.tape.record import Record
    from wiretape.proxy.config.load import Loaded
    from wiretape.proxy.config.model import Config

    from ..seal import Rules
    from .recording import Ran

__all__ = ["add"]

#: Of the folder for the tapes of one run, so that they are found where it was killed.
_PREFIX: Final = "wiretape-record-"
#: What `wiretape serve` listens on, unless told otherwise.
_PORT: Final = "8787"
#: Why the proxy refuses (proxy/security/access.py), as far as the status alone tells it.
_REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "400": "a header twice, a key in the URL, or no JSON",
        "401": "the proxy takes a key of its own",
        "403": "from a page of another origin: the setting `origins`",
        "404": "no path below /v1/ or /ROUTE/v1/",
        "405": "a method that is not relayed",
        "413": "longer than `body_bytes_max`",
        "415": "a chat request that is not called application/json",
        "421": "its Host is not of this machine: the setting `hosts`",
        "503": "too many at once, or no room for tapes",
    }
)
_SETTINGS: Final = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


_Upstream = Annotated[
    str | None, typer.Option(metavar="URL", help="The provider's base URL; else as configured.", show_default=False)
]
_Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        metavar="FILE",
        help="The sealed tape, or a folder for it; else named by command and time.",
        show_default=False,
    ),
]
_Port = Annotated[
    str | None, typer.Option(metavar="PORT", help="For clients that read a file; else a free one.", show_default=False)
]
_Profile = Annotated[
    str | None,
    typer.Option(
        metavar="strict|transparent", help="What the command gets.  [default: transparent]", show_default=False
    ),
]
_Data = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="Keep the live tapes there, too.", show_default=False)
]
_Client = Annotated[
    str | None,
    typer.Option(
        "--print-config",
        metavar="CLIENT",
        help="Print what goes into this client's file, and exit.",
        show_default=False,
    ),
]


def add(app: typer.Typer) -> None:
    """To the command line."""
    app.command("record", context_settings=_SETTINGS, options_metavar="[OPTIONS] -- COMMAND...")(_record)


def _record(
    context: typer.Context,
    *,
    upstream: _Upstream = None,
    out: _Out = None,
    exact: Annotated[bool, typer.Option("--exact", help="Redact and rename nothing.")] = False,
    detector: DetectorName = None,
    port: _Port = None,
    profile: _Profile = None,
    data: _Data = None,
    config: ConfigFile = None,
    print_config: _Client = None,
) -> None:
    """Run a command and tape what it is told.

    A proxy starts on a free port, the command finds it in OPENAI_BASE_URL, ANTHROPIC_BASE_URL and their like, and when
    it has ended, its streams become one sealed tape, in order. The exit code is the command's own, or 1 where nothing
    was recorded. Takes the options of `serve`, in the form --idle-s=60.
    """
    if print_config is not None:
        _print(print_config, port or _PORT)
        return
    settings, command = _split(context.args)
    if not command:
        raise FailedError("no command: wiretape record [OPTIONS] -- COMMAND...", BAD_USAGE)
    if exact and detector:
        raise FailedError("--exact and --detector exclude each other", BAD_USAGE)
    detect = load_detector(detector)
    context.args = settings
    loaded = loaded_from(
        config,
        context,
        upstream=upstream,
        profile=profile,
        host="127.0.0.1",
        port=port or "0",
        data=data or tempfile.gettempdir(),
    )
    with told():
        from ..redaction.user_rules import Redaction
        from ..seal import Rules

        rules = Rules(exact=exact, redaction=Redaction(detector=detect))
        code = _recorded(loaded, command, _place(out, command), Path(data) if data else None, rules)
    if code:
        raise typer.Exit(code)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Settings of ours, then the command."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        if "=" not in arguments[at]:
            raise FailedError(
                f"{arguments[at]}: no option of record; a setting is written {arguments[at]}=VALUE", BAD_USAGE
            )
        at += 1
    command = list(arguments[at:])
    return list(arguments[:at]), command[1:] if command[:1] == ["--"] else command


def _print(client: str, port: str) -> None:
    from .print_config import CLIENTS, snippet

    if client not in CLIENTS:
        raise FailedError(f"--print-config: one of {', '.join(CLIENTS)}", BAD_USAGE)
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise FailedError("--print-config: needs the --port that will be recorded on", BAD_USAGE)
    said = snippet(client, f"http://127.0.0.1:{port}")
    typer.echo(said.text, nl=False)
    typer.echo(f"wiretape: this goes into {said.where}; then wiretape record --port {port} -- {said.command}", err=True)


def _place(out: Path | None, command: Sequence[str]) -> Path:
    if out is not None and not out.is_dir():
        return out
    name = f"{Path(command[0]).stem or 'command'}-{time.strftime('%Y%m%d-%H%M%S')}.tape"
    return Path(name) if out is None else out / name


def _recorded(loaded: "Loaded", command: Sequence[str], out: Path, data: Path | None, rules: "Rules") -> int:
    """The exit code. The folder for one run outlives it where its tapes could not be sealed."""
    from .recording import ended_by, recorded, tapes_in, to_record

    folder = data or Path(tempfile.mkdtemp(prefix=_PREFIX))
    config = to_record(loaded.config, folder, loaded.origins)
    before = frozenset(tapes_in(folder))
    try:
        ran = _ran(config, command)
        streams, damaged = recorded(folder, before)
        if streams:
            _seal(streams, out, rules)
    except BaseException:
        if tapes_in(folder).keys() - before:
            _say(f"not sealed; the live tapes stay in {folder}")
        elif data is None:
            shutil.rmtree(folder)
        raise
    for said in damaged:
        _say(f"left out, and not removed: {said}")
    if data is None and not damaged:
        shutil.rmtree(folder)
    status, refused = ended_by(ran.status), _refusals(ran.refused)
    if streams:
        _say(f"{out}: {_summary(streams)}" + (f"; {refused}" if refused else ""))
        return status or (FOUND_WRONG if damaged else 0)
    why = f"{command[0]} asked nothing of the proxy (see wiretape record --print-config CLIENT)"
    _say(f"nothing was recorded: {refused or why}")
    return status or FOUND_WRONG


def _refusals(refused: Mapping[str, int]) -> str:
    """How many requests the proxy let nowhere, and why; empty where it refused none."""
    count = sum(refused.values())
    if not count:
        return ""
    each = [f"{number} with {status} {_phrase(status)}" for status, number in sorted(refused.items())]
    return f"{count} {'request was' if count == 1 else 'requests were'} refused by the proxy: {', '.join(each)}"


def _phrase(status: str) -> str:
    said = HTTPStatus(int(status)).phrase if status.isdecimal() and int(status) in set(HTTPStatus) else ""
    return f"{said} ({_REFUSED[status]})" if status in _REFUSED else said


def _ran(config: "Config", command: Sequence[str]) -> "Ran":
    import trio

    from wiretape.proxy.cli.serve import CannotListenError
    from wiretape.proxy.log import Log, stderr_fd
    from wiretape.proxy.security.headers import masked
    from wiretape.proxy.server.server import BindError

    from .recording import run

    def mask(text: str) -> str:
        return masked(text.encode("utf-8", "replace"), config.secrets).decode("utf-8", "replace")

    def ready(url: str) -> None:
        _say(f"{url} tapes into {config.data} while {command[0]} runs")

    log = Log(stderr_fd(), level="error", mask=mask)
    try:
        return trio.run(partial(run, config, command, log=log, environ=os.environ, on_ready=ready))
    except BindError as error:
        raise CannotListenError(str(error)) from error
    finally:
        log.close()


def _seal(streams: "Sequence[Sequence[Record]]", out: Path, rules: "Rules") -> None:
    from ..redaction.body_codec import unreadable
    from ..seal import seal

    sealed = seal(streams, rules)
    for one in unreadable(streams):
        _say(f"stream {one.stream + 1}: {one}: its size and hash are kept, its bytes are not")
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_name(out.name + ".new")
    unfinished.write_bytes(sealed)
    unfinished.replace(out)


def _summary(streams: "Sequence[Sequence[Record]]") -> str:
    endings = Counter(str(records[-1].keys.get("ending", "live")) for records in streams)
    said = ", ".join(f"{count} {ending}" for ending, count in endings.items())
    return f"{len(streams)} {'stream' if len(streams) == 1 else 'streams'} ({said})"


def _say(text: str) -> None:
    typer.echo(f"wiretape: {text}", err=True)
