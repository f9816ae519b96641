"""Files for other programs agree with semlex: how it is deployed, its workflows, its version, its licences."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from semlex.settings.table import SETTINGS
from tests.support.command_tree import parse, parted
from tests.support.folders import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
OBJECTS = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "semlex.yaml").read_text("utf-8")))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# Read by docker-compose.yml itself.
OF_COMPOSE = {"SEMLEX_PORT", "SEMLEX_DOCUMENTS", "SEMLEX_EXTRAS"}


def commands():
    """What the files start, and what their comments say to type."""
    yield pytest.param(json.loads(re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)[0]), id="image")
    for name, service in COMPOSE["services"].items():
        if name not in ("postgres", "serve"):
            yield pytest.param(service["command"], id=f"compose-{name}")
    for unit in UNITS:
        started = re.findall(r"^ExecStart=/opt/semlex/bin/semlex (.*)$", unit.read_text("utf-8"), re.MULTILINE)
        yield pytest.param(shlex.split(started[0]), id=unit.name)
    for one in OBJECTS:
        if one["kind"] == "Deployment":
            container = one["spec"]["template"]["spec"]["containers"][0]
            yield pytest.param(container["args"], id=one["metadata"]["name"])
    files = [ROOT / "docker-compose.yml", *UNITS, ROOT / "deploy" / "kubernetes" / "semlex.yaml"]
    for file in files:
        shown = re.findall(r"^#.*?(?: run --rm \w+|bin/semlex|#   semlex) (.+)$", file.read_text("utf-8"), re.MULTILINE)
        for number, line in enumerate(shown):
            yield pytest.param(shlex.split(line), id=f"{file.name}-comment-{number}")


@pytest.mark.parametrize("words", list(commands()))
def test_commands_can_be_typed(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, rest = parted(words)
    parse(name, rest)


def test_variables_extras_versions_and_workflows_agree_with_the_project():
    used = 0
    for one in OBJECTS:
        if one["kind"] == "Deployment":
            container = one["spec"]["template"]["spec"]["containers"][0]
            named = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
            assert named <= {variable["name"] for variable in container["env"]}
            used += len(named)
    assert used
    known = {setting.variables[0] for setting in SETTINGS} | OF_COMPOSE
    files = [ROOT / ".env.example", ROOT / "docker-compose.yml", *(ROOT / "deploy").rglob("*.*"), *WORKFLOWS]
    named = {name for file in files for name in re.findall(r"SEMLEX_[A-Z_]+", file.read_text("utf-8"))}
    assert named <= known
    assert named >= OF_COMPOSE
    named = re.findall(r"EXTRAS[=:-]+\s*([a-z,-]+)", DOCKERFILE + (ROOT / ".env.example").read_text("utf-8"))
    assert len(named) == 2
    assert len(set(named)) == 1
    assert set(named[0].split(",")) <= PROJECT["project"]["optional-dependencies"].keys()
    version = tomllib.loads((ROOT / "Cargo.toml").read_text("utf-8"))["workspace"]["package"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == version
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    images = {match for one in OBJECTS for match in re.findall(r"/semlex:([\d.]+)", json.dumps(one))}
    assert images == {version}
    uses = {
        tuple(one.split("@"))
        for file in WORKFLOWS
        for one in re.findall(r"uses: ([\w./-]+@.*)$", file.read_text("utf-8"), re.MULTILINE)
    }
    names = [name for name, _ in uses]
    assert len(names) == len(set(names))
    for workflow in WORKFLOWS:
        text = workflow.read_text("utf-8")
        found = yaml.safe_load(text)
        assert found["permissions"] == {}
        for job in found["jobs"].values():
            assert job["permissions"]
            assert job["timeout-minutes"]
            for step in job["steps"]:
                if step.get("uses", "").startswith("actions/checkout"):
                    assert step["with"]["persist-credentials"] is False
        uses = re.findall(r"uses: (.*)$", text, re.MULTILINE)
        assert uses
        assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one) for one in uses)


# --- licences of what is compiled in ----------------------------------------------------------------------------------

NOTICES = (ROOT / "THIRD-PARTY-NOTICES").read_text("utf-8")


def notices_module():
    spec = importlib.util.spec_from_file_location("notices", ROOT / "rust" / "notices.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_linked_crate_and_its_data_are_in_the_package():
    listed = re.findall(r"^={80}\n(\S+) (\S+) \(.+\)$", NOTICES, re.MULTILINE)
    assert len(listed) == len(set(listed))
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text("utf-8"))
    locked = {(package["name"], package["version"]) for package in lock["package"] if "source" in package}
    assert set(listed) <= locked, "run ./x notices"
    # What was downloaded to build this very package, so that nothing is now.
    assert set(listed) == set(notices_module().linked("--offline")), "run ./x notices"
    parts = NOTICES.split("=" * 80)[1:]
    for part in parts:
        assert re.search(r"permission|redistribution|warranty|public domain", part, re.IGNORECASE), part[:200]
    # Crates that bring data are described, with its licence or its sources; the package itself has none.
    module = notices_module()
    for (name, _), package in module.linked("--offline").items():
        below = Path(package["manifest_path"]).parent / "src"
        found = [path for path in below.rglob("*") if path.name == "README" or path.name.startswith("LICEN")]
        assert [path for path in found if path.parent != below.parent] == (
            [below.parent / module.DATA[name]] if name in module.DATA else []
        )
    for name, file in module.DATA.items():
        part = NOTICES.partition(f"{'=' * 80}\n{name} ")[2].partition("=" * 80)[0]
        assert {"regex-syntax": "UNICODE, INC. LICENSE", "stop-words": "were obtained from"}[name] in part, file
    package = ROOT / "python" / "semlex"
    others = [
        path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", ".pyi", ".so")
    ]
    assert {path.parent for path in others} == {package, package / "server" / "page"}
    for path in others:
        text = path.read_text("utf-8")  # no font and no picture but a drawing
        assert not re.search(r"copyright|licen[cs]e|@preserve|sourceMappingURL|@font-face", text, re.IGNORECASE), path
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "THIRD-PARTY-NOTICES" in project["project"]["license-files"]
    included = [entry["path"] for entry in project["tool"]["maturin"]["include"]]
    assert included == ["LICENSE", "THIRD-PARTY-NOTICES"]


# --- what the script x makes is complete or absent --------------------------------------------------------------------

KILLED = "kill -9 $PPID; exit 1"
SOURCES = ("Cargo.toml", "Cargo.lock", "pyproject.toml", "constraints.txt", "rust/lib.rs", "python/a.py")


def program(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path):
    """A checkout whose programs do nothing."""
    if sys.platform == "win32":
        pytest.skip("a script of bash")
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


def test_an_interrupted_copy_or_wheel_is_made_again(folder, run):
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


def test_an_interrupted_build_leaves_no_other_core_and_changes_during_a_build_are_built_next_time(folder, run):
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
