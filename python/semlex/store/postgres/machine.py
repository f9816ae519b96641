"""What this machine has, as far as a server on it is concerned."""

from __future__ import annotations

import os
from pathlib import Path


def machine_memory() -> int:
    """Bytes of memory that this machine, or the container of this process, has; 0 where that is not known."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0
    try:
        return min(found, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no such group, or no limit
        return found
