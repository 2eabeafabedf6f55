"""What users install: exactly the files of the rooms, as wiretape.*, whatever else is called events where they are."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import ROOMS, ROOT, modules, present

pytestmark = pytest.mark.slow


def run(*arguments: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, which was built from a copy: a build in the tree would leave its own mark there."""
    tree, dist = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for place in present():
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / place, tree / place)
    # Without isolation setuptools is the one of the lock and no network is needed.
    run("-m", "build", "--no-isolation", "--outdir", dist, cwd=tree)
    (built,) = dist.glob("*.whl")
    return built


def test_the_wheel_built_from_the_sdist_holds_exactly_the_rooms(wheel: Path) -> None:
    rooms = {f"wiretape/{place}" for place in present() if place.startswith(tuple(f"{room}/" for room in ROOMS))}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == rooms, "is a package missing in [tool.setuptools] of pyproject.toml?"


def test_it_imports_beside_a_users_own_events_folder(wheel: Path, tmp_path: Path) -> None:
    installed, project = tmp_path / "installed", tmp_path / "project"
    run("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", installed, wheel, cwd=tmp_path)
    (project / "events").mkdir(parents=True)
    (project / "events/__init__.py").write_text("OWNER = 'the user'\n")

    imports = "\n".join(f"import {module.name}" for module in modules())
    script = f"{imports}\nimport events\nprint(wiretape.events.__file__, events.OWNER)"
    answer = run("-W", "error", "-c", script, cwd=project, PYTHONPATH=str(installed))

    assert answer == f"{installed / 'wiretape/events/__init__.py'} the user\n"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imported_by_its_folders_name_refuses(room: str) -> None:
    """It would be a second copy of each class, and isinstance would fail far from here."""
    with pytest.raises(AssertionError, match=f"import it as wiretape.{room}"):
        run("-c", f"import {room}", cwd=ROOT)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_tells_checkers_that_it_has_types(room: str) -> None:
    assert (ROOT / room / "py.typed").is_file()
