"""The command line: every verb of the proxy, and the one place that joins those of the proxy and of replay.

Exit codes: 0 for success; 1 if the command found a problem; 2 for a bad command line or configuration; 3 if something
cannot be found, read or started; 130 if interrupted. Results go to stdout, logs and errors to
stderr, each error in one line. Each verb imports what it needs when it runs.
"""

import os
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from typer.core import TyperCommand

import wiretape
from wiretape.replay.cli import compare, inspect, play, reading, record, seal

from . import db, otel
from .common import (
    BAD_USAGE,
    CANNOT_START,
    FOUND_WRONG,
    INTERRUPTED,
    AsJson,
    ConfigFile,
    DataFolder,
    FailedError,
    announce,
    echo,
    line_of,
    loaded_from,
    one_line_errors,
    open_streams,
    print_json,
    root_of,
    settle,
)

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter
    from typer._click.shell_completion import CompletionItem

    from ..config.model import Config

__all__ = ["announcement", "app", "banner", "main", "warn_of_missing_keys"]

app = typer.Typer(
    name="wiretape",
    help="The flight recorder in front of an LLM provider.",
    # Plain help is the same on every terminal and in docs/reference/commands.md, and takes 0.1 s instead of 0.2 s.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
_config = typer.Typer(help="Show the configuration.", rich_markup_mode=None)
app.add_typer(_config, name="config")
app.add_typer(db.app, name="db")
app.add_typer(otel.app, name="otel")

#: Options that a command does not define may be settings.
_ANY_SETTING: Final = {"ignore_unknown_options": True, "allow_extra_args": True}
_UPSTREAM: Final = typer.Option(
    metavar="URL", help="The provider's base URL, such as https://api.example.com/v1.", show_default=False
)
_HOST: Final = typer.Option(metavar="HOST", help="Where to listen.  [default: 127.0.0.1]", show_default=False)
_PORT: Final = typer.Option(metavar="PORT", help="0 picks a free port.  [default: 8787]", show_default=False)
_CURL: Final = """\
curl -N {base}/chat/completions -H 'Content-Type: application/json' {key}\
-d '{{"model":"gpt-4o-mini","stream":true,"messages":[{{"role":"user","content":"Say hello"}}]}}'"""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run `wiretape` and exit."""
    try:
        open_streams()
        if not __debug__:
            reason = "python -O removes the assertions that protect the tapes; start without it"
            raise FailedError(reason, CANNOT_START)  # noqa: TRY301 - one way out for all
        given = sys.argv[1:] if arguments is None else arguments
        with one_line_errors():
            code = app(given or ["--help"], standalone_mode=False, prog_name="wiretape")
        sys.stdout.flush()
    except typer.TyperException as error:
        _fail(error.format_message(), error.exit_code)
    except (BrokenPipeError, SystemExit):  # the reader has closed the pipe, which typer turns into SystemExit
        settle()
        sys.exit(0)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except FailedError as error:
        _fail(str(error), error.code)
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        _fail("no thread could be started", CANNOT_START)
    except OSError as error:
        _fail(f"{error.filename or 'the system'}: {error.strerror or error}", CANNOT_START)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    echo(f"wiretape: {' '.join(message.split())}", err=True)
    settle()
    sys.exit(code)


def _version(given: bool) -> None:
    if given:
        echo(f"wiretape {wiretape.__version__}")
        raise typer.Exit


@app.callback()
def _top(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version


# -- serving ----------------------------------------------------------------------------------------------------------


class _WithSettings(TyperCommand):
    """A command that takes settings as options. The help of `serve` lists them by group."""

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the first sentence of what each setting is for."""
        from ..config.model import ROUTE, SERVER, TARGET

        groups = {"the server": SERVER, "each route": ROUTE, "each upstream": TARGET}
        for whose, settings in groups.items() if ctx.info_name == "serve" else ():
            with formatter.section(f"Settings of {whose}"):
                formatter.write_dl([(each.flag, each.reason.partition(". ")[0].rstrip(".")) for each in settings])

    def shell_complete(self, ctx: "Context", incomplete: str) -> "list[CompletionItem]":
        """Complete settings too."""
        from typer._click.shell_completion import CompletionItem

        from ..config.model import ROUTE, SERVER, TARGET

        found = {item.value: item for item in super().shell_complete(ctx, incomplete)}
        flags = [each.flag for each in (*SERVER, *ROUTE, *TARGET) if incomplete and each.flag.startswith(incomplete)]
        return [*found.values(), *(CompletionItem(flag) for flag in flags if flag not in found)]


@app.command("serve", cls=_WithSettings, context_settings=_ANY_SETTING)
def _serve(
    context: typer.Context,
    *,
    upstream: Annotated[str | None, _UPSTREAM] = None,
    host: Annotated[str | None, _HOST] = None,
    port: Annotated[str | None, _PORT] = None,
    data: DataFolder = None,
    config: ConfigFile = None,
) -> None:
    """Serve an upstream and record every stream.

    Prints the base URL, an export line and a curl line; logs go to stderr. Each setting of wiretape.toml is an option
    too: --idle-s 60 is idle_s = 60.
    """
    from ..config.urls import is_loopback
    from ..server.systemd import inherited
    from ..workers.worker import VARIABLE, worker_from

    started_as = os.environ.pop(VARIABLE, "")
    if sockets := inherited():
        addresses: list[tuple[str, int]] = [sock.getsockname()[:2] for sock in sockets]
        host, number = min(addresses, key=lambda address: is_loopback(address[0]))  # the least local one
        port = str(number)
    loaded = loaded_from(config, context, upstream=upstream, host=host, port=port, data=data)
    worker = worker_from(started_as, loaded.config)
    if worker is None:
        warn_of_missing_keys(loaded.config)
    if sockets and loaded.config.workers > 1:
        raise FailedError("workers: need sockets of their own, not those of a socket unit", BAD_USAGE)
    import trio

    from ..log import Log, stderr_fd

    def on_ready(url: str) -> None:
        if not announce(announcement(url, loaded.config)):
            log.warn("not_announced", url=url, why="stdout has no reader")
        facts = banner(url, loaded.config)
        if sys.stderr.isatty():
            echo("\n".join(f"{name:<9}  {value}" for name, value in facts.items()), err=True)
        else:  # a log is kept and copied, so it gets no token
            log.info("serving", **{**facts, "inspector": facts["inspector"].partition("#")[0]})

    human = None if loaded.config.log_format is None else loaded.config.log_format == "text"
    with closing(Log(stderr_fd(), human=human, secrets=loaded.config.secrets)) as log:
        if worker is None and loaded.config.workers > 1:
            from ..workers.parent import Parent

            raise typer.Exit(trio.run(Parent(loaded.config, log, on_ready).run))
        from wiretape.replay.compare.side_by_side import side_by_side

        from ..serve import run

        serving = partial(run, loaded.config, log=log, inherited=sockets, compare=side_by_side, worker=worker)
        trio.run(partial(serving, on_ready=on_ready if worker is None else worker.ready))


def announcement(url: str, config: "Config") -> str:
    """Return lines to copy: the base URL, the variables that most clients read, and a first request."""
    name, route = next(iter(config.routes.items()))  # the default one, if there is one
    base, target = f"{url}/{name}/v1" if name else f"{url}/v1", route.targets[0]
    own, header = "", "Authorization: Bearer"
    if names := [key.name for key in config.keys]:
        value = '"$WIRETAPE_KEY"' if "default" in names else f"...  # the Wiretape key of {' or '.join(names)}"
        own = f"export OPENAI_API_KEY={value}\n"
    elif target.key_header != "authorization":
        header = f"{target.key_header}:"
    needed = bool(names) or target.key is None  # else Wiretape sends the upstream's own
    key = f'-H "{header} $OPENAI_API_KEY" ' if needed else ""
    return f"{base}\nexport OPENAI_BASE_URL={base}\n{own}{_CURL.format(base=base, key=key)}\n"


def banner(url: str, config: "Config") -> dict[str, str]:
    """Return what a person wants to know of a server that has started."""
    from ..inspector.page import inspector_address

    routes = config.routes.items()
    named = [f"/{name}: " * bool(name) + ", then ".join(each.name for each in route.targets) for name, route in routes]
    owners = ["the one in WIRETAPE_KEY" if key.name == "default" else key.name for key in config.keys]
    own = all(target.key for _, route in routes for target in route.targets)
    sent = "any key or none: Wiretape has those of the upstreams" if own else "their own key for the upstream"
    return {
        "wiretape": wiretape.__version__,
        "upstream": "; ".join(named),
        "data": "none (durability = none)" if config.durability == "none" else str(config.data),
        "inspector": inspector_address(url, config),
        "clients": "send " + (f"a Wiretape key ({', '.join(owners)}) as Authorization: Bearer" if owners else sent),
    }


def warn_of_missing_keys(config: "Config") -> None:
    """Warn of upstreams that get no key: neither one of their own nor the caller's."""
    targets = [target for route in config.routes.values() for target in route.targets if target.key is None]
    if names := ", ".join(dict.fromkeys(each.name for each in targets if config.keys or not each.caller_key)):
        why = "callers send Wiretape's own, which is" if config.keys else "the caller's is"
        cure = "set key_env next to it (or WIRETAPE_UPSTREAM_KEY_ENV) to the name of the key's variable"
        echo(f"wiretape: no key is sent to {names}: {why} not passed on. If a key is needed, {cure}", err=True)


@app.command("demo")
def _demo(*, data: DataFolder = None) -> None:
    """Try it without a provider.

    Records three streams: a text, a tool call, and one that breaks inside a tool call. A scripted upstream and the real
    proxy run inside this process; nothing leaves this machine. The tapes are kept in DIR, or in a new temporary folder.
    """
    from wiretape.replay.cli.demo import run_demo

    as_due = run_demo(Path(data) if data else None)
    if not as_due:
        raise typer.Exit(FOUND_WRONG)


@app.command("health", context_settings=_ANY_SETTING)
def _health(
    context: typer.Context,
    *,
    ready: Annotated[bool, typer.Option("--ready", help="Fail also if it takes no new streams.")] = False,
    config: ConfigFile = None,
) -> None:
    """Check that a server runs on this machine.

    Exits with 1 if it does not. The configuration says where it listens; --host and --port replace that.
    """
    from .health import check

    server = loaded_from(config, context, serving=False).config
    raise typer.Exit(check(server.host, server.port, ready=ready))


@app.command("reindex")
def _reindex(*, data: DataFolder = None, config: ConfigFile = None, json_: AsJson = False) -> None:
    """Rebuild the catalogue from the tapes.

    Stop the server first.
    """
    root = root_of(data, config)
    from ..store.catalogue import reindex
    from ..store.folder import Folder, folders_in

    counts: dict[Path, int] = {}
    for each in folders_in(root):
        with closing(Folder(each)) as folder:
            counts[each] = reindex(folder)
    if json_:
        echo(line_of({"data": str(root), "streams": sum(counts.values())}))
    else:
        echo("\n".join(f"{count} streams in {folder / 'catalogue.db'}" for folder, count in counts.items()))


@app.command("doctor", cls=_WithSettings, context_settings=_ANY_SETTING)
def _doctor(
    context: typer.Context,
    *,
    upstream: Annotated[str | None, _UPSTREAM] = None,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Check configuration, storage, every tape and upstreams.

    Exits with 1 if it finds a problem. Takes the options of `serve`. Without an upstream checks everything else.
    """
    served = loaded_from(config, serving=False, upstream=upstream, data=data).config.routes
    loaded = loaded_from(config, context, serving=bool(served), upstream=upstream, data=data)
    from .doctor import examine, lines

    found = examine(loaded)
    if json_:
        print_json([check._asdict() for check in found])
    else:
        echo("\n".join(lines(found)))
    if any(check.state == "wrong" for check in found):
        raise typer.Exit(FOUND_WRONG)


@_config.command("show", cls=_WithSettings, context_settings=_ANY_SETTING)
def _config_show(
    context: typer.Context, *, data: DataFolder = None, config: ConfigFile = None, json_: AsJson = False
) -> None:
    """Print every setting and its source.

    Secrets are masked. Takes the options of `serve`.
    """
    loaded = loaded_from(config, context, serving=False, data=data)
    from .show import console, settings_table

    if json_:
        print_json([row._asdict() for row in loaded.rows])
    else:
        console().print(settings_table(loaded.rows))


# -- recordings -------------------------------------------------------------------------------------------------------

for module in (reading, inspect, record, seal, play, compare):
    app.add_typer(module.app)
