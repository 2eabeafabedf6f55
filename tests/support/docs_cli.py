"""docs/cli.md: the help text of every verb."""

from collections.abc import Iterator

from typer.testing import CliRunner

from wiretape.proxy.cli.main import app

__all__ = ["cli"]

HEAD = """\
# The command line

Generated from `proxy/cli/main.py` by `make docs`.

Results go to stdout, logs and errors to stderr. An error is one line.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | a problem was found, or something does not exist or is ambiguous |
| 2 | the command line or the configuration is invalid |
| 3 | something cannot be started or read: a port, a file, a folder, a lock |
| 130 | interrupted |

Every setting of [the configuration](configuration.md) is an option of `serve`, `doctor` and `config show`:
`idle_s = 60` is `--idle-s 60`. Reading verbs do not lock the data folder, so they work while a server runs.
"""


def cli() -> str:
    """Return the whole document."""
    said = [f"## wiretape {verb}".rstrip() + f"\n\n```text\n{_help(verb)}\n```\n" for verb in ("", *_verbs())]
    return "\n".join([HEAD, *said])


def _verbs() -> Iterator[str]:
    """Yield every verb that is not hidden."""
    yield from (str(verb.name) for verb in app.registered_commands)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        prefix = f"{group.name} " if isinstance(group.name, str) else ""
        yield from (f"{prefix}{verb.name}" for verb in group.typer_instance.registered_commands if not verb.hidden)


def _help(verb: str) -> str:
    said = CliRunner().invoke(app, [*verb.split(), "--help"], env={"COLUMNS": "100"}, prog_name="wiretape")
    assert said.exit_code == 0, said.output
    return said.output.strip()
