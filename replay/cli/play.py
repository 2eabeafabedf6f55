"""`wiretape replay` and `wiretape cut`: recordings answer on a port, and a part of one becomes a tape of its own"""

from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from wiretape.proxy.cli.common import BAD_USAGE, CANNOT_START, FOUND_WRONG, FailedError, announce, told

from .output import refuse_folder, write_whole

if TYPE_CHECKING:
    from ..faults.faults import Faults
    from ..playback.player import Speed
    from ..playback.serving import Serving

__all__ = ["add"]

_Tapes = Annotated[list[Path], typer.Argument(metavar="TAPE...", help="Sealed or live tapes.")]
#: One beside that of `wiretape serve`, so that both can run.
_PORT: Final = 8788


def add(app: typer.Typer) -> None:
    """To the command line."""
    app.command("replay")(_replay)
    app.command("cut")(_cut)


def _replay(
    tapes: _Tapes,
    *,
    host: Annotated[str, typer.Option(metavar="HOST", help="An address of loopback.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="0 takes a free one.")] = _PORT,
    speed: Annotated[
        str, typer.Option(metavar="SPEED", help="instant, original, or how many times as fast.")
    ] = "instant",
    max_gap: Annotated[
        float | None, typer.Option(metavar="MS", min=0, help="No recorded silence above it.", show_default=False)
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="FAULT", help="As cut@frame:3; may be given again.", show_default=False),
    ] = None,
    match: Annotated[
        Literal["key", "position", "strict"], typer.Option(help="Whether content, turn, or both make a stream answer.")
    ] = "key",
    ids: Annotated[Literal["recorded", "fresh"], typer.Option(help="The ids of answers and calls.")] = "recorded",
    attempts: Annotated[
        Literal["answered", "recorded"], typer.Option(help="The last attempt of a stream, or each in turn.")
    ] = "answered",
    side: Annotated[
        Literal["upstream", "client"], typer.Option("--as", help="What the upstream said, or what its client got.")
    ] = "upstream",
    repeat: Annotated[bool, typer.Option("--repeat", help="A stream may answer more than once.")] = False,
) -> None:
    """Serve recordings in place of their upstream.

    The same bytes in the same pieces, and the same ending; no network is ever asked. Prints the base URL and export
    lines; each request is a line on stderr. Ends with SIGINT or SIGTERM; exit code 1 where something was asked that is
    not recorded.
    """
    if side == "client" and attempts == "recorded":
        raise FailedError("--attempts recorded is of the upstream: --as client has one answer a stream", BAD_USAGE)
    with told():
        from ..playback.serving import Serving, deck_of

        deck = deck_of(tapes, match, attempts=attempts, repeat=repeat)
        serving = Serving(deck, _say, _faults(fault), _speed(speed, max_gap), side, ids)
        _serve(serving, host, port)
    if serving.misses:
        raise FailedError(f"{serving.misses} of {serving.asked} requests are not recorded", FOUND_WRONG)


def _faults(texts: list[str] | None) -> "Faults":
    from ..faults.faults import FaultError, Faults

    try:
        return Faults.of(texts or ())
    except FaultError as error:
        raise FailedError(f"--fault: {error}", BAD_USAGE) from error


def _speed(text: str, gap_ms_max: float | None) -> "Speed":
    from ..playback.player import Speed

    try:
        return Speed.of(text, inf if gap_ms_max is None else gap_ms_max / 1_000)
    except ValueError:
        raise FailedError(
            f"--speed {text}: instant, original, or how many times as fast, as in 10", BAD_USAGE
        ) from None


def _say(line: str) -> None:
    """Whoever read the lines may have gone, and the server goes on."""
    with suppress(OSError):
        typer.echo(line, err=True)


def _serve(serving: "Serving", host: str, port: int) -> None:
    """Until SIGINT or SIGTERM."""
    from functools import partial

    import trio

    try:
        trio.run(partial(_until_told, serving, host, port))
    except* OSError as group:
        error = group.exceptions[0]
        raise FailedError(f"{host}:{port}: {getattr(error, 'strerror', None) or error}", CANNOT_START) from None


async def _until_told(serving: "Serving", host: str, port: int) -> None:
    import signal

    import trio

    from ..playback.server import listening

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with listening(serving.choose, port, host, say=_say, ended=serving.ended) as (url, _):
            announce(_announcement(url))  # whoever has closed stdout may know the port
            async for _ in signals:
                break
    for line in serving.behind():
        _say(line)


def _announcement(url: str) -> str:
    origin = url.removesuffix("/v1")
    return f"{url}\nexport OPENAI_BASE_URL={url}\nexport ANTHROPIC_BASE_URL={origin}\n"


def _cut(
    tape: Annotated[Path, typer.Argument(metavar="TAPE", help="A sealed or a live tape.")],
    *,
    after: Annotated[str, typer.Option(metavar="PLACE", help="As frame:3, tool:write_file, byte:120, text, finish.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The sealed tape.")],
    ending: Annotated[Literal["reset", "eof", "stall", "cut"], typer.Option(help="What comes there.")] = "reset",
    stream: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Which one; else the last that has the place.", show_default=False),
    ] = None,
) -> None:
    """Make a tape that fails out of one that does not.

    What was recorded up to a place, and then: a reset, a proper end of HTTP without the stream's own (eof), silence
    (stall), or a connection that is closed too early (cut). The new tape names its parent.
    """
    refuse_folder(out)
    with told():
        from wiretape.events.core.errors import TapeError

        from ..faults.cutting import cut
        from ..faults.faults import FaultError
        from ..sealed.blobs import read

        try:
            made = cut(read(tape), after, ending, stream=stream, name=tape.name)
        except FaultError as error:
            raise FailedError(f"--after {after}: {str(error).rpartition(': ')[2]}", BAD_USAGE) from error
        except TapeError as error:
            raise FailedError(f"{tape}: {error}", CANNOT_START) from error
        write_whole(out, made)
