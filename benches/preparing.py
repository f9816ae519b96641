"""Environments of the baselines, made once: they must not change what semlex itself is installed with."""

from __future__ import annotations

import subprocess
import sys
import venv
from typing import TYPE_CHECKING

from benches.training import prepare_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

LANGCHAIN_POSTGRES = "langchain-postgres==0.0.19"


def langchain_python(state: Path) -> Path:
    """Interpreter of the environment with langchain-postgres."""
    return state / "langchain" / "bin" / "python"


def prepare(state: Path) -> None:
    """Makes what is missing."""
    python = langchain_python(state)
    if not python.exists():
        print(f"installing {LANGCHAIN_POSTGRES} into an environment of its own", file=sys.stderr)
        venv.create(state / "langchain", with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, LANGCHAIN_POSTGRES, "psycopg[binary]"], check=True)
    prepare_tokenizer(state)
