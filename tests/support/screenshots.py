"""Pictures of the page for the documentation: ``python -m tests.support.screenshots [FOLDER]``."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from tests.support.browser import browser_of, required_executable
from tests.support.folders import ROOT, new_open_folder
from tests.support.shown import HAS_HITS

FOLDER = ROOT / "docs" / "images"
MAX_BYTES = 150_000
COLLECTION = "handbook"
QUESTION = "move a collection to another server"
OPEN_SCORE = "document.querySelector('.score summary').click()"
ASK_WHY = "document.getElementById('missing').value = 'filters.md'; document.querySelector('.why button').click()"
# Name of the file -> width, height, scheme, what the address says, what is done, and what is waited for.
SHOTS = {
    f"{name}{'-dark' if scheme == 'dark' else ''}": (width, height, scheme, place, does, until)
    for name, width, height, place, does, until in (
        ("page", 1200, 580, {"q": QUESTION, "w": "0.5"}, OPEN_SCORE, HAS_HITS),
        ("page-why", 960, 420, {"q": QUESTION}, ASK_WHY, "document.querySelector('.reasons') !== null"),
    )
    for scheme in ("light", "dark")
}


@contextmanager
def serving(folder):
    """The address of `semlex ui` on the project's documentation."""
    environment = {**os.environ, "SEMLEX_DATA_DIR": str(folder / "data"), "SEMLEX_KEEP_ALIVE": "0"}
    command, given = [sys.executable, "-m", "semlex"], {"env": environment, "cwd": folder}
    folders = (str(ROOT / "docs" / part) for part in ("how-to", "reference", "explanation"))
    subprocess.run([*command, "index", *folders, "-c", COLLECTION], check=True, stdout=subprocess.DEVNULL, **given)
    shown = [*command, "ui", "-c", COLLECTION, "--judgements", "judged"]
    with subprocess.Popen(shown, stderr=subprocess.PIPE, text=True, **given) as process:
        try:
            found = re.search(r"http://[^/\s]+", process.stderr.readline())
            assert found is not None, process.stderr.read()
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def take(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with new_open_folder() as work, serving(work) as address, browser_of(required_executable()) as browser:
        for name, (width, height, scheme, place, does, until) in SHOTS.items():
            with browser.page(width, height, scheme=scheme) as page:
                page.open(f"{address}/#search?{urlencode({'collection': COLLECTION, **place})}")
                page.wait(HAS_HITS)
                page.value(does)
                page.wait(until)
                if "why" in name:
                    page.value("document.querySelector('.why').scrollIntoView()")
                page.value("document.getElementById('status').remove()")
                page.draw()
                picture = page.picture()
                assert page.errors == [], page.errors
            assert len(picture) < MAX_BYTES, (name, len(picture))
            (folder / f"{name}.png").write_bytes(picture)
            print(f"{folder / name}.png: {len(picture):,} bytes")  # noqa: T201


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
