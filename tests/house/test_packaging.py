"""The wheel contains exactly the product's files as wiretape.*, whichever other packages the user has."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import ROOMS, ROOT, installed, modules, present
from wiretape import __version__

pytestmark = pytest.mark.slow


def run(*arguments: str | Path, cwd: Path, program: str | Path = sys.executable, **environment: str) -> str:
    command = [program, *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=60
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


def shared_files() -> list[tuple[str, str]]:
    """Return what the wheel installs below share/, as (folder, file of the repository)."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    return [(folder, place) for folder, places in setuptools["data-files"].items() for place in places]


def test_wheel_from_sdist_contains_exactly_the_product(wheel: Path) -> None:
    product = {installed(place) for place in present() if place.startswith(tuple(f"{room}/" for room in ROOMS))}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    shared = {f"wiretape-{__version__}.data/data/{target}/{Path(source).name}" for target, source in shared_files()}
    assert held == product | shared, "is a package missing in [tool.setuptools] of pyproject.toml?"


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Make an environment where our dependencies can be imported."""
    home = tmp_path / "environment"
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    return home


def test_wheel_works_next_to_a_users_own_events_folder_and_leaves_nothing(
    wheel: Path, environment: Path, tmp_path: Path
) -> None:
    python, before = environment / "bin/python", files_below(environment)
    pip = ("-m", "pip", "--quiet", f"--python={python}")
    run(*pip, "install", "--no-index", "--no-deps", wheel, cwd=tmp_path)
    (tmp_path / "events").mkdir()
    (tmp_path / "events/__init__.py").write_text("OWNER = 'the user'\n")

    imports = "\n".join(f"import {module.name}" for module in modules() if not module.name.endswith("__main__"))
    script = f"{imports}\nimport events\nprint(wiretape.events.__file__, wiretape.__version__, events.OWNER)"
    said = run("-W", "error", "-c", script, cwd=tmp_path, program=python)
    place, *rest = said.split(maxsplit=2)
    assert Path(place).is_relative_to(environment)
    assert rest == [__version__, "the user\n"]
    for program in ((environment / "bin/wiretape",), (python, "-m", "wiretape")):
        assert run(*program[1:], "--version", cwd=tmp_path, program=program[0]) == f"wiretape {__version__}\n"
    assert all((environment / target / Path(source).name).is_file() for target, source in shared_files())

    run(*pip, "uninstall", "--yes", "wiretape", cwd=tmp_path)
    assert files_below(environment) == before


@pytest.mark.parametrize("package", ROOMS)
def test_importing_a_package_by_its_folder_name_raises(package: str) -> None:
    """A second copy of each class would make isinstance fail far from the cause."""
    with pytest.raises(AssertionError, match=f"import it as wiretape.{package}"):
        run("-c", f"import {package}", cwd=ROOT)
