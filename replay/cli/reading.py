"""`wiretape ls`, `show` and `follow`: what streams and runs resulted in."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from wiretape.proxy.cli.common import (
    BAD_USAGE,
    CANNOT_START,
    FOUND_WRONG,
    AsJson,
    ConfigFile,
    Database,
    DataFolder,
    FailedError,
    TapeName,
    echo,
    line_of,
    print_json,
    root_of,
)

if TYPE_CHECKING:
    from wiretape.events.folds.run import RunFold
    from wiretape.events.tape.record import Record
    from wiretape.events.tape.tape import Damage
    from wiretape.proxy.store.catalogue_row import Fate, StreamRow
    from wiretape.proxy.store.store import Filter

__all__ = ["app", "streams_named"]

app = typer.Typer()


def _endings() -> list[str]:
    from typing import get_args

    from wiretape.events.core.model import Ending

    return list(get_args(Ending))


@app.command("ls")
def _list(
    tapes: Annotated[list[str] | None, typer.Argument(metavar="[TAPE]...", help="Only these.")] = None,
    *,
    model: Annotated[str | None, typer.Option(help="Only this model.", show_default=False)] = None,
    route: Annotated[str | None, typer.Option(help="Only this route.", show_default=False)] = None,
    ending: Annotated[str | None, typer.Option(help="Only this ending.", autocompletion=_endings)] = None,
    tool: Annotated[str | None, typer.Option(help="Only with a call of this tool.", show_default=False)] = None,
    lost: Annotated[bool, typer.Option("--lost", help="Only with a tool call that was cut off.")] = False,
    path: Annotated[str | None, typer.Option(help="Only requests whose path contains this.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Not before: 2h or 3d ago, or a time.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only before this time.")] = None,
    grep: Annotated[str | None, typer.Option(metavar="WORDS", help="Only if the model said these words.")] = None,
    query: Annotated[str | None, typer.Option("-q", metavar="FILTER", help="As in the inspector: gap:>5s.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Only streams that have not ended.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="List runs instead of streams.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000, help="Maximum number of rows.")] = 20,
    all_: Annotated[bool, typer.Option("--all", help="List every stream.")] = False,
    data: DataFolder = None,
    store: Database = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """List streams, the latest first.

    Works while a server runs. Times are of this machine's zone; `lost` names the tools whose calls were cut off.
    """
    given = {"ending": ending, "tool": tool, "path": path, "since": since, "until": until, "lost": "yes" * lost}
    if ending is not None and live:
        raise FailedError("--ending and --live exclude each other", BAD_USAGE)
    if runs and (live or grep or query or tapes or any(given.values())):
        raise FailedError("--runs goes with --model, --route, -n and --all only", BAD_USAGE)
    from wiretape.proxy.cli.tapes import streams

    which = replace(_filter(query, given, grep, live=live), model=model, route=route, runs=runs)
    if (tapes or store) and which.text:
        raise FailedError("words are searched in the data folder only, not in named tapes or a --store", BAD_USAGE)
    _without(store, data, tapes)
    if store:
        from wiretape.proxy.cli.stored import listed

        rows, beyond = listed(store, which, None if all_ else limit)
        root, more = "the database", "more" * beyond
    elif tapes:
        rows = [row for row in _rows_of(tapes, data, config) if which.admits(row)]
        root, more = tapes[0], ""
    else:
        folder = root_of(data, config)
        rows, count = streams(folder, which, None if all_ else limit)
        root, more = str(folder), f"{count} more" * bool(count)
    if runs and rows:
        _print_runs(rows, _runs_of(rows, root, store), json_=json_)
    elif rows or json_:
        _print_rows(rows, json_=json_)
    else:
        echo(f"no such {'runs' if runs else 'streams'} in {root}", err=True)
    if more and not json_:
        echo(f"{more}: --all")


def _print_rows(rows: "Sequence[StreamRow]", *, json_: bool) -> None:
    from wiretape.proxy.api.streams import row_json
    from wiretape.proxy.cli.show import console, table_of

    if json_:
        print_json([row_json(row, live=not row.ending) for row in rows])
    else:
        console().print(table_of(rows))


def _without(store: str | None, data: str | None, tapes: object = None) -> None:
    if store and (data or tapes):
        raise FailedError("--store excludes --data and tapes that are named", BAD_USAGE)


def _filter(query: str | None, given: Mapping[str, str | None], grep: str | None, *, live: bool) -> "Filter":
    """Return the filter of the options, which are written in the language of the inspector."""
    from wiretape.proxy.store.query import QueryError, parse_query

    words = [f'{name}:"{value}"' for name, value in given.items() if value]
    phrase = (grep or "").replace('"', " ").strip()
    try:
        meant = parse_query(" ".join([query or "", *words, f'"{phrase}"' * bool(phrase)]), time.time())
    except QueryError as error:
        raise FailedError(str(error), BAD_USAGE) from error
    return replace(meant.which, ending="" if live or meant.live else None)


def _rows_of(names: Sequence[str], data: str | None, config: str | None) -> "list[StreamRow]":
    """Return the rows of the streams that names mean, the latest first."""
    from wiretape.proxy.cli.tapes import DAMAGED, NO_END, with_fates
    from wiretape.proxy.store.catalogue_row import row_of_tape

    rows: list[StreamRow] = []
    for path, each in streams_named(names, data, config):
        row = row_of_tape(each.name, each.records).stream
        ending, flags = row.ending or ("" if each.live else NO_END), [DAMAGED] if each.damage else []
        rows += with_fates(path.parent.parent, [replace(row, ending=ending, flags=(*row.flags, *flags))])
    return sorted(rows, key=lambda row: row.place, reverse=True)


def _runs_of(rows: "list[StreamRow]", root: str, store: str | None) -> "list[tuple[list[bytes], RunFold, list[str]]]":
    """Return events and state of the runs of these first turns, and what is wrong with their tapes."""
    names = [row.run or "" for row in rows]
    if store:
        from wiretape.proxy.cli.stored import runs_in

        return runs_in(store, names)
    from wiretape.proxy.cli.runs import read_run

    return [read_run(Path(root), name) for name in names]


def _print_runs(
    rows: "list[StreamRow]", found: "Sequence[tuple[list[bytes], RunFold, list[str]]]", *, json_: bool
) -> None:
    from wiretape.proxy.cli.runs import runs_table
    from wiretape.proxy.cli.show import console
    from wiretape.proxy.runs.api import run_json

    runs = [(run, bool(wrong)) for _, run, wrong in found]
    if json_:
        print_json([run_json(run) for run, _ in runs])
    else:
        console().print(runs_table(rows, runs))


@app.command("show")
def _show(
    name: TapeName,
    *,
    events: Annotated[bool, typer.Option("--events", help="Print every event.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the bytes emitted for the client.")] = False,
    tape: Annotated[bool, typer.Option("--tape", help="Print the tape.")] = False,
    data: DataFolder = None,
    store: Database = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Show one stream, or one run.

    Prints what was asked, how it ended and why, its attempts, tools, text, timing, usage and repairs; of a run its
    state, the calls that it waits for, its output, usage and streams. Of a file or folder, all streams in it.
    """
    if events + raw + tape > 1 or (json_ and (raw or tape)):
        raise FailedError("--events, --raw and --tape exclude each other; --raw and --tape exclude --json", BAD_USAGE)
    from wiretape.proxy.cli.tapes import paths_of, run_named

    how = "events" if events else "raw" if raw else ""
    _without(store, data)
    if store:
        _show_stored(store, name, "tape" if tape else how, json_=json_)
    elif tape:
        for path in paths_of(name, data, config):
            sys.stdout.buffer.write(path.read_bytes())
    elif run := run_named(name, data, config):
        from wiretape.proxy.cli.runs import read_run

        _show_run(*read_run(*run), how=how, json_=json_)
    else:
        paths = paths_of(name, data, config)
        _show_streams(((path, stream) for path in paths for stream in _streams_in(path)), how, json_=json_)


def _show_stored(store: str, name: str, how: str, *, json_: bool) -> None:
    from wiretape.events.tape.record import encode
    from wiretape.proxy.cli.stored import runs_in, streams_in

    if name.startswith("run_") and how != "tape":
        _show_run(*runs_in(store, [name])[0], how=how, json_=json_)
        return
    found = streams_in(store, name)
    if how == "tape":
        sys.stdout.buffer.write(b"".join(encode(record) for stored in found for record in stored.records))
    else:
        _show_streams(((stored.name, _Stream(*stored)) for stored in found), how, json_=json_)


def _show_streams(found: "Iterable[tuple[Path | str, _Stream]]", how: str, *, json_: bool) -> None:
    from wiretape.events.emit import emit
    from wiretape.proxy.cli.show import console, event_json, event_line, events_of, summary_view

    summaries, wrong = list[Any](), list[str]()
    for number, (path, stream) in enumerate(found):
        wrong += [f"{path}: byte {at}: {reason}" for at, reason in stream.damage]
        if how == "raw":
            sys.stdout.buffer.write(emit(stream.records))
        elif how == "events":
            for t, event in events_of(stream.records):
                echo(line_of(event_json(t, event)) if json_ else event_line(t, event))
        elif json_:
            summaries.append(_summary(path, stream))
        else:
            request = next((record for record in stream.records if record.kind == "request"), None)
            echo("\n" * bool(number), nl=False)
            console().print(summary_view(_summary(path, stream), request))
    if summaries:
        print_json(summaries if len(summaries) > 1 else summaries[0])
    _report(wrong)


class _Stream(NamedTuple):
    """One stream of a file: its id, or the file's name and its number; its records and what is wrong with them."""

    name: str
    records: "Sequence[Record]"
    damage: "Sequence[Damage]" = ()
    #: Whether a server writes to it.
    live: bool = False
    #: What became of its calls; if it is not known, the catalogue of its folder may know.
    fates: "Mapping[str, Fate] | None" = None


def _summary(path: Path | str, stream: _Stream) -> dict[str, Any]:
    """Return the summary of a stream with what became of its calls."""
    from wiretape.events.emit import Summariser
    from wiretape.proxy.api.streams import summary_json
    from wiretape.proxy.cli.tapes import fates_in
    from wiretape.proxy.store.catalogue_row import NO_FATES

    fates = stream.fates
    if fates is None:
        _, fates = fates_in(Path(path).parent.parent, [stream.name]).get(stream.name, ((), NO_FATES))
    summarised = Summariser().feed(*stream.records)
    return summary_json(stream.name, summarised, live=stream.live, whole=True, damage=stream.damage, fates=fates)


def streams_named(names: Sequence[str], data: str | None, config: str | None) -> Iterator[tuple[Path, _Stream]]:
    """Yield the streams that names mean, each with its file. Raise `FailedError` for a file without any record."""
    from wiretape.proxy.cli.tapes import paths_of

    for path in (path for name in names for path in paths_of(name, data, config)):
        for each in _streams_in(path):
            if not each.records:
                raise FailedError(f"{path}: not a tape", CANNOT_START)
            yield path, each


def _streams_in(path: Path) -> list[_Stream]:
    """Return the streams of a tape of either form."""
    from wiretape.proxy.cli.tapes import read_tape

    from ..sealed.files import load

    if not _is_sealed(path):
        return [_Stream(path.stem, *read_tape(path))]
    streams = load(path, verify=False).streams
    numbers = [f", stream {number}" if len(streams) > 1 else "" for number in range(1, len(streams) + 1)]
    return [_Stream(f"{path}{number}", records) for number, records in zip(numbers, streams, strict=True)]


def _is_sealed(path: Path) -> bool:
    from ..sealed.sealed import MARK

    if not path.is_file():  # a pipe may never answer
        return False
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK


def _show_run(frames: Sequence[bytes], run: "RunFold", wrong: Sequence[str], *, how: str, json_: bool) -> None:
    from wiretape.proxy.cli.runs import event_of, run_view
    from wiretape.proxy.cli.show import console
    from wiretape.proxy.runs.api import run_json

    if how == "raw":
        sys.stdout.buffer.write(b"".join(frames))
    elif how == "events":
        for frame in frames:
            echo(line_of(event_of(frame)))
    elif json_:
        print_json(run_json(run))
    else:
        console().print(run_view(run))
    _report(wrong)


def _report(wrong: Sequence[str]) -> None:
    """Print what is wrong with tapes, and exit with 1 if anything is."""
    for line in wrong:
        echo(f"wiretape: {line}", err=True)
    if wrong:
        raise typer.Exit(FOUND_WRONG)


@app.command("follow")
def _follow(
    name: TapeName,
    *,
    data: DataFolder = None,
    store: Database = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Print a stream or a run as it arrives, until it ends.

    With --json prints its events, one per line. A run that waits for tools has not ended.
    """
    from wiretape.proxy.cli.tapes import run_named

    _without(store, data)
    if store:
        from wiretape.proxy.cli.stored import followed, run_followed

        if name.startswith("run_"):
            wrong = run_followed(store, name, _runs_printed(json_=json_))
        else:
            wrong = followed(store, name, _events_printed(json_=json_))
    elif run := run_named(name, data, config):
        from wiretape.proxy.cli.runs import follow_run

        wrong, put = list[str](), _runs_printed(json_=json_)
        for frame in follow_run(*run, wrong):
            put(frame)
    else:
        wrong = _follow_tapes(name, data, config, json_=json_)
    _report(wrong)


def _follow_tapes(name: str, data: str | None, config: str | None, *, json_: bool) -> list[str]:
    """Print tapes as they arrive; return what is wrong with them."""
    from wiretape.proxy.cli.tapes import TapeFollower, paths_of

    wrong: list[str] = []
    for path in paths_of(name, data, config):
        if _is_sealed(path):
            for recorded in _streams_in(path):
                _events_printed(json_=json_)(recorded.records)
            continue
        with closing(TapeFollower(path)) as tape:
            put = _events_printed(json_=json_)
            for record in tape.records():
                put((record,))
        wrong += [f"{path}: byte {at}: {reason}" for at, reason in tape.damage]
        if not tape.ended:
            wrong.append(tape.missing_end)
    return wrong


def _events_printed(*, json_: bool) -> "Callable[[Sequence[Record]], None]":
    """Return what prints the records of one stream as they arrive."""
    from wiretape.proxy.cli.show import TextView, TimedEvents, event_json

    view, timed = TextView(), TimedEvents()

    def put(records: "Sequence[Record]") -> None:
        for record in records:
            for t, event in timed.feed(record):
                echo(line_of(event_json(t, event)) + "\n" if json_ else view.add(event), nl=False)

    return put


def _runs_printed(*, json_: bool) -> "Callable[[bytes], None]":
    """Return what prints the events of one run as they arrive."""
    from wiretape.proxy.cli.runs import RunText, event_of

    text = RunText()

    def put(frame: bytes) -> None:
        each = event_of(frame)
        echo(line_of(each) + "\n" if json_ else text.add(each), nl=False)

    return put
