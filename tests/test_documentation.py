"""The examples of README and docs run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples() -> list[pytest.ParameterSet]:
    found = []
    for page in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        found += [pytest.param(block, id=f"{page.name}-{number}") for number, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize("example", examples())
def test_example_runs(example: str, open_folder: Path) -> None:
    environment = {**os.environ, "SEMLEX_DATA_DIR": str(open_folder)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_demonstration_finds_what_it_imports() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import demo.__main__"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in [*PAGES, ROOT / "CONTRIBUTING.md"]
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


def test_commands_in_the_guide_exist() -> None:
    done = subprocess.run([sys.executable, "-m", "semlex", "--help"], capture_output=True, text=True, check=True)
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for command in set(re.findall(r"`semlex ([a-z]+)", guide)):
        assert f" {command} " in done.stdout, command
