"""Run as a process of its own: indexes a folder by words, loads a file of vectors, or imports a table.

Prints how much memory the process had before, and at the peak, in MiB.
"""

from __future__ import annotations

import sys
from pathlib import Path

from semlex import SyncRetriever


def main() -> None:
    """Indexes or loads; prints what was held before and at the peak."""
    path, url, work = sys.argv[1:]
    with SyncRetriever(url, "none", None, use_reranking=False, collection="memory") as retriever:
        retriever.count()
        before = _peak()
        if work == "load":
            retriever.tables.load(path)
        elif work == "import":
            retriever.tables.import_table(path)
        else:
            retriever.index(Path(path))
        print(before, _peak())


def _peak() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
