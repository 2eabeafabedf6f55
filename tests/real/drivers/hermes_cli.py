"""hermes-agent, asked once with `hermes chat -Q -q`; its own database holds the responses."""

import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from ..processes import PYTHONS, environment
from ..servers import hermes_configuration
from .command import Done, failed, failure, run, write_record
from .lines import serve, turn

_HERMES: Final = PYTHONS["hermes"].with_name("hermes")


def answer(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> dict[str, Any] | None:
    """Run it in an empty folder with the command that its model calls."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        configuration = hermes_configuration(asked["model"], asked["base_url"], asked["key"], Path(folder))
        (home / "config.yaml").write_text(configuration, encoding="utf-8")
        write_record(folder, asked["record"])
        options = ["--provider", "custom", "-m", asked["model"], "-t", "terminal", "--yolo", "--ignore-rules"]
        env = environment(HERMES_HOME=str(home), HOME=folder)
        done = run([_HERMES, "chat", "-Q", "-q", asked["prompt"], *options], env, asked, folder)
        turns += _turns(home / "state.db")
    ran += [arguments for each in turns[:-1] for _, _, arguments in each["calls"]]
    return _error(done, turns)


def _turns(database: Path) -> list[dict[str, Any]]:
    if not database.exists():
        return []
    with closing(sqlite3.connect(database)) as opened:
        rows = opened.execute(
            "select content, tool_calls, finish_reason from messages where role = 'assistant' order by id"
        ).fetchall()
    turns: list[dict[str, Any]] = []
    for content, said, finish in rows:
        calls: list[Any] = json.loads(said or "[]")
        named = [[call["id"], call["function"]["name"], call["function"]["arguments"]] for call in calls]
        turns.append(turn(content or "", named, finish or "", None))
    return turns


def _error(done: Done, turns: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the error. Add what it printed to the last turn if its database has another answer."""
    if done.status != 0:
        return failed(done, (done.out.strip() or done.err.strip())[-600:])
    said = f"{done.out.strip()}\n{done.err.strip()}".strip()
    if not turns:  # it keeps nothing of an answer that it takes for cut, and says so
        return failure("said", said[-600:])
    if (turns[-1]["text"] or "").strip() not in said.splitlines():
        turns[-1]["text"] += "\n" + said
    return None


if __name__ == "__main__":
    serve(answer)
