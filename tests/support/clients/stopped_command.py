"""A program for tests: the command line, until it stops itself at a moment of one of its transactions."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from semlex.cli.app import main as semlex_main
from tests.support.clients.moments import stop_at

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(url: str, arguments: Sequence[str], moment: tuple[str, str, int]) -> None:
    """Runs `semlex` with the arguments."""
    os.environ["DATABASE_URL"] = url
    stop_at(*moment)
    sys.argv = ["semlex", *arguments]
    semlex_main()
