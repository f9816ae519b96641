"""Runs the cells of a notebook, a JSON list on standard input, in a shell of IPython; prints what each shows."""

import json
import sys

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

settings = Config()
settings.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=settings)
shown = []
for cell in json.load(sys.stdin):
    with capture_output() as captured:
        done = shell.run_cell(cell)
        done.raise_error()
    result = None if done.result is None else shell.display_formatter.format(done.result)[0]
    # What the cell has displayed or updated, in order.
    outputs = [{"data": one["data"], "update": one.get("update", False)} for one in captured._outputs]
    shown.append({"result": result, "outputs": outputs, "stdout": captured.stdout, "stderr": captured.stderr})
sys.stdout.write(json.dumps(shown))
