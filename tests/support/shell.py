"""The command line as a process, for the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "# Keys\n\n## Rotation\n\nRotate a key every ninety days.\n\n## Storage\n\nKeys are stored in a vault.\n"


class Shell:
    """Runs `semlex` against a database."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SEMLEX_")}
        self.environment |= {"DATABASE_URL": url, "COLUMNS": "200"}

    def __call__(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "semlex", *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def objects(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        done = self(*arguments, "--json", code=code)
        assert done.stderr == ""
        return [json.loads(line) for line in done.stdout.splitlines()]
