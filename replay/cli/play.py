"""`wiretape replay` and `wiretape cut`: serve recordings on a port, and make failing tapes."""

from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from wiretape.proxy.cli.common import (
    BAD_USAGE,
    CANNOT_START,
    FOUND_WRONG,
    ConfigFile,
    DataFolder,
    FailedError,
    TapeName,
    TapeNames,
    announce,
    echo,
    one_line_errors,
)

from .seal import one_path, refuse_folder

if TYPE_CHECKING:
    from ..serving.serving import Serving

__all__ = ["app"]

app = typer.Typer()

#: Next to the port of `wiretape serve`, so that both can run.
_PORT: Final = 8788


@app.command("replay")
def _replay(
    tapes: TapeNames,
    *,
    host: Annotated[str, typer.Option(metavar="HOST", help="A loopback address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="0 takes a free port.")] = _PORT,
    speed: Annotated[str, typer.Option(metavar="SPEED", help="instant, original, or a factor such as 10.")] = "instant",
    max_gap: Annotated[float | None, typer.Option(metavar="MS", min=0, help="The longest silence.")] = None,
    fault: Annotated[
        list[str] | None, typer.Option(metavar="FAULT", help="For example cut@frame:3. Repeatable.")
    ] = None,
    match: Annotated[Literal["key", "position"], typer.Option(help="Match requests by content or by turn.")] = "key",
    repeat: Annotated[bool, typer.Option("--repeat", help="Let a stream answer more than once.")] = False,
    all_headers: Annotated[
        bool, typer.Option("--all-headers", help="Also send recorded cookies and access-control headers.")
    ] = False,
    data: DataFolder = None,
    config: ConfigFile = None,
) -> None:
    """Serve recordings in place of their upstream.

    Sends the same bytes in the same pieces with the same ending, and never uses a network. Prints the base URL and
    export lines, and one line on stderr for each request. SIGINT or SIGTERM ends it; the exit code is 1 if a request
    was not recorded.
    """
    with one_line_errors():
        import trio

        from wiretape.proxy.cli.tapes import paths_of

        from ..faults.faults import Faults
        from ..faults.places import FaultError
        from ..playback.script import Speed
        from ..serving.serving import Serving, load_deck

        paths = [path for name in tapes for path in paths_of(name, data, config)]
        deck = load_deck(paths, match, repeat=repeat)
        try:
            faults = Faults.of(fault or ())
            pace = Speed.of(speed, inf if max_gap is None else max_gap / 1_000)
        except FaultError as error:
            raise FailedError(f"--fault: {error}", BAD_USAGE) from error
        except ValueError:
            raise FailedError(f"--speed is instant, original or a factor such as 10, not {speed}", BAD_USAGE) from None
        serving = Serving(deck, faults, speed=pace, all_headers=all_headers, say=_say)
        try:
            trio.run(_until_signal, serving, host, port)
        except* OSError as group:
            cause = group.exceptions[0]
            raise FailedError(f"{host}:{port}: {getattr(cause, 'strerror', None) or cause}", CANNOT_START) from None
    if serving.missed:
        raise FailedError(f"{serving.missed} of {serving.requests} requests were not recorded", FOUND_WRONG)


async def _until_signal(serving: "Serving", host: str, port: int) -> None:
    import signal

    import trio

    from ..playback.server import listening

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with listening(serving.choose, port, host, say=_say, ended=serving.ended) as (url, _):
            origin = url.removesuffix("/v1")
            announce(f"{url}\nexport OPENAI_BASE_URL={url}\nexport ANTHROPIC_BASE_URL={origin}\n")
            async for _ in signals:
                break
    for line in serving.remaining():
        _say(line)


def _say(line: str) -> None:
    """Print a line on stderr, even if its reader is gone."""
    with suppress(OSError):
        echo(line, err=True)


@app.command("cut")
def _cut(
    tape: TapeName,
    *,
    after: Annotated[str, typer.Option(metavar="PLACE", help="frame:3, tool:write_file, byte:120, text or finish.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The sealed tape to write.")],
    ending: Annotated[
        Literal["reset", "eof", "stall", "cut"], typer.Option(help="How the stream ends there.")
    ] = "reset",
    stream: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Which stream. Default: the last with this place.")
    ] = None,
    data: DataFolder = None,
    config: ConfigFile = None,
) -> None:
    """Make a failing tape from a good one.

    Keeps the recording up to a place, followed by a reset, a clean end of HTTP without the stream's own (eof), silence
    (stall), or a connection that closes too early (cut). The new tape names its parent.
    """
    refuse_folder(out)
    with one_line_errors():
        from wiretape.events.core.errors import TapeError

        from ..faults.cutting import cut
        from ..faults.places import FaultError
        from ..sealed.files import read, write_whole

        path = one_path(tape, data, config)
        try:
            made = cut(read(path), after, ending, stream=stream, name=path.name)
        except FaultError as error:
            raise FailedError(f"--after {after}: {str(error).rpartition(': ')[2]}", BAD_USAGE) from error
        except TapeError as error:
            raise FailedError(f"{tape}: {error}", CANNOT_START) from error
        write_whole(out, made)
