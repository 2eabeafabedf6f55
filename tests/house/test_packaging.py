"""The wheel contains exactly the product's files as wiretape.*, whichever other packages the user has."""

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
    """Build the wheel from the sdist of a copy, because a build leaves files in the tree."""
    tree, dist = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for place in present():
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / place, tree / place)
    # Without isolation it uses the locked setuptools and needs no network.
    run("-m", "build", "--no-isolation", "--outdir", dist, cwd=tree)
    (built,) = dist.glob("*.whl")
    return built


def test_wheel_from_sdist_contains_exactly_the_product(wheel: Path) -> None:
    product = {f"wiretape/{place}" for place in present() if place.startswith(tuple(f"{room}/" for room in ROOMS))}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == product, "is a package missing in [tool.setuptools] of pyproject.toml?"


def test_wheel_imports_next_to_a_users_own_events_folder(wheel: Path, tmp_path: Path) -> None:
    installed, project = tmp_path / "installed", tmp_path / "project"
    run("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", installed, wheel, cwd=tmp_path)
    (project / "events").mkdir(parents=True)
    (project / "events/__init__.py").write_text("OWNER = 'the user'\n")

    imports = "\n".join(f"import {module.name}" for module in modules())
    script = f"{imports}\nimport events\nprint(wiretape.events.__file__, events.OWNER)"
    answer = run("-W", "error", "-c", script, cwd=project, PYTHONPATH=str(installed))

    assert answer == f"{installed / 'wiretape/events/__init__.py'} the user\n"


@pytest.mark.parametrize("package", ROOMS)
def test_importing_a_package_by_its_folder_name_raises(package: str) -> None:
    """A second copy of each class would make isinstance fail far from the cause."""
    with pytest.raises(AssertionError, match=f"import it as wiretape.{package}"):
        run("-c", f"import {package}", cwd=ROOT)


@pytest.mark.parametrize("package", ROOMS)
def test_packages_are_marked_as_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
