"""The distribution holds only the package `foldlog`, and the root folders cannot stand in for it."""

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
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
BUILD_INPUTS = (*FOLDERS, "package", "LICENSE", "README.md", "pyproject.toml", "setup.py")


def copy_source(target: Path) -> None:
    """Copy what a build reads, so that leftovers of other builds in the source tree have no say."""
    for name in BUILD_INPUTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target / name)


def test_the_lock_leaves_no_dependency_to_be_found_while_it_is_installed() -> None:
    locked = {
        canonicalize_name(line.split("==")[0])
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if "==" in line
    }
    missing = set()
    wanted, seen = [("foldlog", "dev")], set()
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for text in importlib.metadata.requires(name) or ():
            need = Requirement(text)
            if need.marker is not None and not need.marker.evaluate({"extra": extra}):
                continue
            dependency = canonicalize_name(need.name)
            if dependency not in locked | {"foldlog"}:
                missing.add(f"{dependency} of {name}")
                continue
            wanted += [(dependency, each) for each in ("", *need.extras)]
    assert len(seen) > 100
    assert not missing


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


def test_the_wheel_holds_only_the_package_foldlog_and_its_metadata(wheel: set[str]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {name.split("/")[0] for name in wheel} == {"foldlog", f"foldlog-{version}.dist-info"}
    own = {"__init__.py", "py.typed", "types.py"}
    assert {name.split("/")[1] for name in wheel if name.startswith("foldlog/")} == {*FOLDERS, *own}


def test_every_module_of_the_five_folders_is_in_the_wheel(wheel: set[str]) -> None:
    modules = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    named = {f"foldlog/{path.relative_to(ROOT).as_posix()}" for path in modules}
    assert {*named, "foldlog/__init__.py", "foldlog/types.py"} == {
        name for name in wheel if name.endswith(".py")
    }


def test_the_wheel_marks_each_package_as_typed(wheel: set[str]) -> None:
    assert {name for name in wheel if name.endswith("py.typed")} == {
        "foldlog/py.typed",
        *(f"foldlog/{folder}/py.typed" for folder in FOLDERS),
    }


def test_the_license_travels_with_the_wheel(wheel: set[str]) -> None:
    assert [name for name in wheel if name.endswith(".dist-info/licenses/LICENSE")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_folders_at_the_root_cannot_be_imported_as_top_level_packages(folder: str) -> None:
    assert str(ROOT) not in sys.path
    assert importlib.util.find_spec(folder) is None
    assert importlib.util.find_spec(f"foldlog.{folder}") is not None


def test_importing_foldlog_loads_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import foldlog; print(*(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert set(loaded.split()) - {"__future__"} == {"foldlog"}


def test_an_editable_installation_has_the_package_and_its_five_folders(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    copy_source(source)
    script = f"from setuptools import build_meta; build_meta.build_editable({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("foldlog-*.whl")
    zipfile.ZipFile(wheel).extractall(target)
    script = (
        f"import site, sys; site.addsitedir({str(target)!r})\n"
        "sys.meta_path.insert(0, sys.meta_path.pop())  # before the path, where the tests' own foldlog is\n"
        "import foldlog, foldlog.replay; from foldlog import Agent, Runtime, Registry, tool, __version__\n"
        "print(foldlog.__file__); print(foldlog.replay.__file__)"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.split()
    assert found == [str(source / "package" / "__init__.py"), str(source / "replay" / "__init__.py")]


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
