"""Find tape files that belong to no test, from all tests that were collected."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["FOLDER", "Claims"]

#: Next to each module.
FOLDER: Final = "tapes"


class Claims:
    """The files that the tests of a run use. With xdist, the claims of all workers are added up."""

    def __init__(self) -> None:
        self._modules: set[Path] = set()
        self._files: set[Path] = set()
        self._whole = True

    def collect(self, tests: Iterable[tuple[Path, Sequence[Path]]], *, whole: bool) -> None:
        """Add tests, each with its module. `whole` is false if single tests were asked for, which hides the others."""
        self._whole = self._whole and whole
        for module, files in tests:
            self._modules.add(module)
            self._files.update(file.resolve() for file in files)

    def unused(self) -> list[Path]:
        """Return the files of modules that were collected or no longer exist.

        A file outside a module's folder may belong to any module next to it, so all of them must be collected.
        """
        folders = {module.parent for module in self._modules} if self._whole else set[Path]()
        return sorted(
            file
            for folder in folders
            for file in (folder / FOLDER).rglob("*.tape")
            if file.resolve() not in self._files and self._judged(folder, file)
        )

    def _judged(self, folder: Path, file: Path) -> bool:
        first, *rest = file.relative_to(folder / FOLDER).parts
        module = folder / f"{first}.py"
        if rest and module.exists():
            return module in self._modules
        return all(each in self._modules for each in folder.glob("test_*.py"))

    def to_json(self) -> dict[str, Any]:
        """Return the claims for another process."""
        return {"modules": [*map(str, self._modules)], "files": [*map(str, self._files)], "whole": self._whole}

    def add(self, claims: Mapping[str, Any]) -> None:
        """Add the claims of another process."""
        self._modules.update(map(Path, claims["modules"]))
        self._files.update(map(Path, claims["files"]))
        self._whole = self._whole and claims["whole"]
