"""The distribution holds only the namespace `foldlog`, and the root folders cannot stand in for it."""

import importlib
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("adapters", "eventlog", "projections", "replay", "runtime")
ENTRY_POINT_GROUPS = (
    "console_scripts",
    "foldlog.executors",
    "foldlog.knowledge",
    "foldlog.prices",
    "foldlog.providers",
    "foldlog.tokens",
    "foldlog.toolsources",
)
BUILD_INPUTS = (*FOLDERS, "LICENSE", "README.md", "pyproject.toml", "setup.py")


def copy_source(target: Path) -> None:
    """Copy what a build reads, so that leftovers of other builds in the source tree have no say."""
    for name in BUILD_INPUTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target / name)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the wheel, built as publishing does it: a source distribution, and the wheel from that."""
    source = tmp_path_factory.mktemp("source")
    copy_source(source)
    build = [sys.executable, "-P", "-m", "build", "--no-isolation", str(source)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (source / "dist").glob("foldlog-*.whl")
    return set(zipfile.ZipFile(path).namelist())


def test_the_wheel_holds_only_the_namespace_foldlog_and_its_metadata(wheel: set[str]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {name.split("/")[0] for name in wheel} == {"foldlog", f"foldlog-{version}.dist-info"}
    assert {name.split("/")[1] for name in wheel if name.startswith("foldlog/")} == set(FOLDERS)


def test_every_module_of_the_five_folders_is_in_the_wheel(wheel: set[str]) -> None:
    modules = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert {f"foldlog/{path.relative_to(ROOT).as_posix()}" for path in modules} == {
        name for name in wheel if name.endswith(".py")
    }


def test_the_wheel_marks_each_of_the_five_packages_as_typed(wheel: set[str]) -> None:
    assert {name for name in wheel if name.endswith("py.typed")} == {
        f"foldlog/{folder}/py.typed" for folder in FOLDERS
    }


def test_the_license_travels_with_the_wheel(wheel: set[str]) -> None:
    assert [name for name in wheel if name.endswith(".dist-info/licenses/LICENSE")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_folders_at_the_root_cannot_be_imported_as_top_level_packages(folder: str) -> None:
    assert str(ROOT) not in sys.path
    assert importlib.util.find_spec(folder) is None
    assert importlib.util.find_spec(f"foldlog.{folder}") is not None


def test_foldlog_is_a_namespace_that_other_distributions_may_join() -> None:
    assert getattr(importlib.import_module("foldlog"), "__file__", None) is None


@pytest.mark.parametrize("group", ENTRY_POINT_GROUPS)
def test_every_entry_point_names_something_that_can_be_imported(group: str) -> None:
    ours = [
        point for point in importlib.metadata.distribution("foldlog").entry_points if point.group == group
    ]
    assert ours
    assert all(callable(point.load()) for point in ours)


def test_the_locks_agree_on_every_version_and_name_no_registry() -> None:
    def pins(path: Path) -> dict[str, str]:
        lines = [line for line in path.read_text().splitlines() if "==" in line]
        return dict(line.split(" ")[0].split("==") for line in lines)

    everything, image = ROOT / "requirements.lock", ROOT / "deploy" / "requirements.lock"
    assert pins(image).items() <= pins(everything).items()
    assert "pytest" not in pins(image)
    assert "://" not in everything.read_text() + image.read_text()
