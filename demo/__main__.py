"""`./x demo`: index the documentation of the running Python and of this repository, ask three questions, check them.

Exit codes: 0 when every known answer is among the first three, 1 otherwise.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

from rich.markup import escape

from demo.pages import write_pages
from semlex import SyncRetriever
from semlex.cli.output import print_results
from semlex.cli.reports import print_report
from semlex.cli.terminal import messages, output, progress_bar

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".state"

# Question, and the page that must be among the first three: by both legs together, and by words alone (which is what
# remains where the static embeddings have no wheel).
QUESTIONS = (
    ("How do I create a temporary directory and delete it afterwards?", "tempfile.md"),
    ("run a program and capture its output", "subprocess.md"),
    ("How does the embedded Postgres count its users?", "design/decisions/020-embedded-postgres.md"),
)
SHOWN = 3


def state_folder() -> Path:
    """Folder for the pages and the server's data: inside the checkout, or where the server's account can reach it.

    As root the server runs under another account, which must be able to pass through every parent folder.
    """
    if os.geteuid() == 0 and not all(parent.stat().st_mode & stat.S_IXOTH for parent in STATE.parents):
        return Path("/var/lib/semlex/demo")
    return STATE


def own_folder(path: str, question: str) -> int:
    """The same with a folder of the user's."""
    command = [sys.executable, "-m", "semlex", "try", path, question]
    if "DATABASE_URL" not in os.environ:
        command += ["--data-dir", str(state_folder())]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    """Runs the demonstration."""
    if len(sys.argv) == 3:  # noqa: PLR2004 - PATH QUESTION
        return own_folder(sys.argv[1], sys.argv[2])
    if len(sys.argv) != 1:
        messages.print('usage: ./x demo, or ./x demo PATH "QUESTION"')
        return 2
    started = time.perf_counter()
    state = state_folder()
    written = write_pages(state / "python-docs")
    messages.print(
        f"[dim]{written.modules} modules of Python {sys.version.split()[0]}, {written.docstrings} docstrings[/dim]"
    )
    failures = []
    with SyncRetriever(data_folder=state / "postgres", collection="demo") as retriever:
        messages.print(f"[dim]{escape(retriever.embedding_choice)}[/dim]")
        with progress_bar(shown=True) as progress:
            report = retriever.index(state / "python-docs", ROOT / "docs", progress=progress)
        print_report(report)
        for question, answer in QUESTIONS:
            output.print(f"\n[bold green]? {question}[/bold green]")
            results = retriever.search(question, SHOWN)
            print_results(results, as_json=False)
            words = retriever.search(question, SHOWN, mode="keyword")
            failures += [question for found in (results, words) if answer not in [hit.source_document for hit in found]]
    messages.print(f"\n[dim]{time.perf_counter() - started:.1f} s in all[/dim]")
    for question in dict.fromkeys(failures):
        messages.print(f"[red]no known answer among the first {SHOWN}:[/red] {question}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
