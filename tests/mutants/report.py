"""The results of mutation runs, stored by module and written as docs/internals/mutants.md."""

import json
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

REASONS: Final = Path(__file__).with_name("survivors.toml")

HEAD: Final = """\
# Mutants

Written by `make mutants`, which makes every small change that cosmic-ray knows (operators, comparisons, numbers,
conditions) to a module, one at a time, and runs the fast tests of that module. A mutant is killed when a test fails or
the run does not end. Mutants that are not valid Python or change only annotations are left out. The limit is 85 %
killed per module. Where fewer mutants were tested than exist, the run took a random sample, seeded by its name.

| file | mutants | tested | killed | survived | rate | day, commit |
|---|---|---|---|---|---|---|
"""
SURVIVORS: Final = """
## Survivors

The reasons are kept in `tests/mutants/survivors.toml`, by file, line and operator.
"""


class Tested(NamedTuple):
    """One mutant and how it went: `killed`, `timeout` or `survived`."""

    operator: str
    line: int
    text: str
    changed: str
    outcome: str


class Result(NamedTuple):
    """One module."""

    module: str
    mutants: int
    when: str
    tested: list[Tested]

    @property
    def survivors(self) -> list[Tested]:
        """Return the mutants that no test noticed."""
        return [one for one in self.tested if one.outcome == "survived"]

    def row(self) -> str:
        """Return the row of the table."""
        return _row(f"`events/{self.module}.py`", self.mutants, [self], self.when)

    def store(self, folder: Path) -> None:
        """Write the result for a later report."""
        folder.mkdir(parents=True, exist_ok=True)
        _place(folder, self.module).write_text(json.dumps(self, indent=1), encoding="utf-8")


def stored(folder: Path, module: str) -> Result | None:
    """Return the result of the last run of a module."""
    path = _place(folder, module)
    if not path.exists():
        return None
    name, mutants, when, tested = json.loads(path.read_text(encoding="utf-8"))
    return Result(name, mutants, when, [Tested(*one) for one in tested])


def rate(results: list[Result]) -> float:
    """Return the share of tested mutants that were killed."""
    tested = sum(len(result.tested) for result in results)
    return 1 - sum(len(result.survivors) for result in results) / max(1, tested)


def document(results: list[Result]) -> str:
    """Return the text of docs/internals/mutants.md."""
    reasons: dict[str, dict[str, Any]] = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    general = reasons.pop("*")
    rows = [result.row() for result in results]
    rows.append(_row("all", sum(result.mutants for result in results), results, ""))
    parts = [HEAD, "\n".join(rows), "\n", SURVIVORS]
    for result in results:
        known = reasons.get(result.module, {})
        lines = dict.fromkeys(_survivor(one, general | known.get(one.text, {})) for one in result.survivors)
        parts += [
            f"\n### `events/{result.module}.py`\n\n| line | became | why no test fails |\n|---|---|---|\n",
            *lines,
        ]
    return "".join(parts)


def _survivor(one: Tested, reasons: dict[str, str]) -> str:
    reason = reasons.get(one.operator) or reasons.get("any") or "**not reviewed**"
    text, changed = (part.replace("|", "\\|") for part in (one.text, one.changed))
    return f"| `{text}` | `{changed}` | {reason} |\n"


def _row(name: str, mutants: int, results: list[Result], when: str) -> str:
    tested, alive = sum(len(each.tested) for each in results), sum(len(each.survivors) for each in results)
    return f"| {name} | {mutants} | {tested} | {tested - alive} | {alive} | {100 * rate(results):.1f} % | {when} |"


def _place(folder: Path, module: str) -> Path:
    return folder / f"{module.replace('/', '-')}.json"
