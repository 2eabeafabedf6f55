"""Which tape files belong to no test: told from the tests that were collected, before any of them was deselected"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["Claims"]

_FOLDER: Final = "tapes"


class Claims:
    """What the tests of a run claim; of a run with workers, what all of them say."""

    def __init__(self) -> None:
        self._modules: set[Path] = set()
        self._files: set[Path] = set()
        self._whole = True

    def collect(self, tests: Iterable[tuple[Path, Sequence[Path]]], *, whole: bool) -> None:
        """Each test with its module. Not `whole`: single tests were asked for, so the others are not known."""
        self._whole = self._whole and whole
        for module, files in tests:
            self._modules.add(module)
            self._files.update(file.resolve() for file in files)

    def unused(self) -> list[Path]:
        """Files of a module that was collected, or that is no more. A file that lies loose, or below another name, may
        belong to any module: it is one where all modules beside it were collected.
        """
        if not self._whole:
            return []
        folders = {module.parent for module in self._modules}
        return sorted(
            file
            for folder in folders
            for file in (folder / _FOLDER).rglob("*.tape")
            if file.resolve() not in self._files and self._judged(folder, file)
        )

    def _judged(self, folder: Path, file: Path) -> bool:
        first, *rest = file.relative_to(folder / _FOLDER).parts
        module = folder / f"{first}.py"
        if rest and module.exists():
            return module in self._modules
        return all(beside in self._modules for beside in folder.glob("test_*.py"))

    def to_json(self) -> dict[str, Any]:
        """For another process."""
        return {
            "modules": [str(module) for module in self._modules],
            "files": [str(file) for file in self._files],
            "whole": self._whole,
        }

    def add(self, said: Mapping[str, Any]) -> None:
        """What another process says."""
        self._modules.update(map(Path, said["modules"]))
        self._files.update(map(Path, said["files"]))
        self._whole = self._whole and said["whole"]
