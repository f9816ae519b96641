"""Without LangChain an integration says what is missing; nothing else of semlex loads it."""

from __future__ import annotations

import subprocess
import sys

import pytest

MISSING = "import sys; sys.modules['langchain_core'] = None\n"


@pytest.mark.parametrize("module", ["semlex.integrations.langchain", "semlex.integrations.langgraph"])
def test_an_integration_says_what_is_missing(module: str) -> None:
    program = (
        MISSING
        + f"""
import semlex.errors
try:
    import {module}
except semlex.errors.MissingExtraError as error:
    assert isinstance(error, ImportError)
    print(error)
"""
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "semlex.integrations.langchain needs the package 'langchain-core': pip install 'semlex[langchain]'\n"
    )


@pytest.mark.slow
def test_what_integrations_share_needs_no_framework() -> None:
    program = MISSING + "import semlex, semlex.integrations, semlex.integrations.calls"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
