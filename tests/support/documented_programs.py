"""The programs in README and docs, and the rule where each runs.

One that imports the integration of a framework runs in its environment, by the tests of `tests/frameworks/NAME`;
all others run with the other tests.
"""

import os
import re
import sys
import warnings

import pytest

from tests.support.folders import ROOT
from tests.support.programs import Program

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# `test_documentation.py` follows them line by line.
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
# The frameworks that the other tests' environment has not.
FRAMEWORKS = ("llama_index", "haystack", "ray", "sqlalchemy")


def as_on_a_page(output, folder):
    """Return the output of a command in a folder without what differs from run to run: paths and times."""
    output = output.replace(sys.executable, "/home/ann/venv/bin/python").replace(str(folder), "/home/ann")
    output = re.sub(r"\d+\.\d (m?s)\b", r"0.1 \1", output)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-11-28 11:09", output)


def documented_programs(framework=None):
    """The programs that import the integration of a framework, or of none that has an environment of its own."""
    found = []
    for page in PAGES:
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)):
            named = re.findall(r"^from semlex\.integrations\.(\w+)", block, re.MULTILINE)
            if page not in TUTORIALS and next((name for name in named if name in FRAMEWORKS), None) == framework:
                found.append(pytest.param(block, id=f"{page.name}-{number}"))
    return found


def documentation_test(framework):
    @pytest.mark.parametrize("program", documented_programs(framework))
    def test_example_runs(program, open_folder, make_server_folder):
        make_server_folder(open_folder / "postgres")
        run_documented(program, open_folder)

    return test_example_runs


def run_documented(program, folder):
    """Runs a program as a process of its own, with the embedded server in a folder; warnings are errors."""
    with Program(_be, program, folder) as running:
        assert running.ended() == 0, running.said


def _be(program, folder):
    os.environ["SEMLEX_DATA_DIR"] = str(folder)
    warnings.simplefilter("error")
    code = compile(program, "example", "exec", dont_inherit=True)  # its own imports from __future__
    exec(code, {"__name__": "__main__"})  # noqa: S102 - ours
