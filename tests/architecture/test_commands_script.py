"""What the script ``x`` makes is complete or absent, wherever it is interrupted."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.folders import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a script of bash")
KILLED = "kill -9 $PPID; exit 1"
Run = Callable[[str], int]
SOURCES = ("Cargo.toml", "Cargo.lock", "pyproject.toml", "constraints.txt", "rust/lib.rs", "python/a.py")


def program(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path):
    """A checkout whose programs do nothing."""
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1))
    program(tmp_path / "bin/cargo", "exit 0")
    program(tmp_path / "bin/uv", 'if [ "$1" = venv ]; then for last; do :; done; mkdir -p "$last"; fi')
    return tmp_path


@pytest.fixture
def run(folder):
    """Runs a function of the script in that checkout; returns its exit code."""

    def run_function(command):
        script = f'source {ROOT}/x help >/dev/null; cd "{folder}"; {command}'
        environment = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, check=False, capture_output=True)
        return done.returncode

    return run_function


def with_environment(folder, maturin):
    (folder / ".venv").mkdir(exist_ok=True)
    (folder / ".venv/pyvenv.cfg").touch()
    program(folder / ".venv/bin/python", "exit 0")
    program(folder / ".venv/bin/maturin", maturin)


def test_an_interrupted_copy_is_made_again(folder, run):
    for name in ("one", "two"):
        (folder / "cache").mkdir(exist_ok=True)
        (folder / "cache" / name).write_text(name)
    program(folder / "bin/cp", f'for last; do :; done; mkdir "$last"; touch "$last/one"; {KILLED}')
    assert run("copy_whole cache state/copy") != 0
    assert not (folder / "state/copy").exists()
    (folder / "bin/cp").unlink()
    assert run("copy_whole cache state/copy") == 0
    assert {path.name: path.read_text() for path in (folder / "state/copy").iterdir()} == {"one": "one", "two": "two"}
    assert [path.name for path in (folder / "state").iterdir()] == ["copy"]


def test_an_interrupted_wheel_is_made_again(folder, run):
    with_environment(folder, KILLED)
    assert run("make_wheel wheels") != 0
    with_environment(folder, 'for last; do :; done; touch "$last/semlex.whl"')
    assert run("make_wheel wheels") == 0
    assert {path.name for path in (folder / "wheels").iterdir()} == {"made", "semlex.whl"}


def test_an_interrupted_environment_is_made_again(folder, run):
    program(folder / ".venv/bin/python", "exit 0")
    (folder / ".venv/left").touch()
    assert run("make_venv") == 0
    assert not (folder / ".venv/left").exists()
    with_environment(folder, "exit 0")
    assert run("make_venv") == 0
    assert (folder / ".venv/bin/maturin").exists()


def test_an_interrupted_build_leaves_no_other_core_and_later_changes_are_built_next_time(folder, run):
    core = 'echo "$3" >core; test -e whole || exit 1'  # maturin develop --profile PROFILE
    with_environment(folder, core)
    (folder / "whole").touch()
    assert run("make_environment local release") == 0
    assert (folder / "core").read_text() == "release\n"
    (folder / "whole").unlink()
    assert run("make_environment local ci") != 0
    (folder / "whole").touch()
    assert run("make_environment local release") == 0
    assert (folder / "core").read_text() == "release\n"
    with_environment(folder, 'echo built >>built; test "$(wc -l <built)" -gt 1 || touch rust/lib.rs')
    assert run("make_environment local ci") == 0
    once = (folder / "built").read_text()
    assert run("make_environment local ci") == 0
    twice = (folder / "built").read_text()
    assert len(twice) == 2 * len(once)
    assert run("make_environment local ci") == 0
    assert (folder / "built").read_text() == twice
