"""Several commands of `semlex` from one interpreter: each is a fork of it, and ends as an interpreter does."""

import json
import os
import sys
from runpy import run_module
from tempfile import TemporaryFile

import semlex.cli.app
import semlex.cli.commands.search
import semlex.retriever.postgres  # noqa: F401 - before the forks

told = []
for arguments in json.loads(sys.argv[1]):
    with TemporaryFile("w+", encoding="utf-8") as said:
        if (child := os.fork()) == 0:
            os.dup2(said.fileno(), 2)
            sys.argv = ["semlex", *arguments]
            run_module("semlex", run_name="__main__")  # it raises SystemExit
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        told.append((code, said.read()))
json.dump(told, sys.stderr)
