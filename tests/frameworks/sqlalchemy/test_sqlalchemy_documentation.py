"""The programs of the pages on this framework run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.documented_programs import documented_programs, run_documented


@pytest.mark.parametrize("program", documented_programs("sqlalchemy"))
def test_example_runs(program: str, open_folder: Path, make_server_folder: Callable[[Path], Path]) -> None:
    make_server_folder(open_folder / "postgres")
    run_documented(program, open_folder)
