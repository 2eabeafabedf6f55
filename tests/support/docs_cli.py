"""docs/cli.md: the help text of every verb, as `wiretape VERB --help` prints it."""

from typer.testing import CliRunner

from wiretape.proxy.cli.main import app

__all__ = ["cli"]

VERBS = (
    "",
    "serve",
    "demo",
    "ls",
    "show",
    "follow",
    "reindex",
    "doctor",
    "config show",
    "record",
    "seal",
    "check",
    "replay",
    "cut",
    "diff",
    "verify",
    "refold",
    "import",
    "export",
)

HEAD = """\
# The command line

Drawn from `proxy/cli/main.py` by `make docs`.

What a verb finds goes to stdout, logs and errors to stderr. An error is one line.

| exit code | says |
|---|---|
| 0 | all is well |
| 1 | something is wrong with what was asked about, or it is not there, or there are several |
| 2 | the command line or the configuration cannot be understood |
| 3 | it cannot be started or read: a port, a file, a folder, a lock |
| 130 | interrupted |

Every setting of [the configuration](configuration.md) is an option of `serve`, `doctor` and `config show`:
`idle_s = 60` is `--idle-s 60`. The verbs that read never keep the data folder's lock, so they work beside a server.
"""


def cli() -> str:
    """All of it."""
    return "\n".join([HEAD, *(f"## wiretape {verb}".rstrip() + f"\n\n```text\n{_help(verb)}\n```\n" for verb in VERBS)])


def _help(verb: str) -> str:
    said = CliRunner().invoke(app, [*verb.split(), "--help"], env={"COLUMNS": "100"}, prog_name="wiretape")
    assert said.exit_code == 0, said.output
    return said.output.strip()
