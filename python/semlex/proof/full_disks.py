"""The server's disk is full for a while: writes fail completely, and succeed again once there is space."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from semlex.proof.crashes import start
from semlex.proof.interruptions import Interrupted
from semlex.proof.traffic import eventually
from semlex.store.proving.ground import connected, set_server

if TYPE_CHECKING:
    from semlex.proof.traffic import Traffic

MIB = 1024**2
DISK_MIB = 320
BLOCK_BYTES = 64 * 1024
# The write-ahead log must fit with the data.
SMALL = {"max_wal_size": "64MB", "min_wal_size": "32MB"}
NEEDS = "needs its own file system in memory, which root may mount on Linux"


def can_mount() -> bool:
    """Return whether this process may mount a small file system."""
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("mount") is not None


class FullDisks(Interrupted):
    """A server on a small file system in memory, which is filled and emptied."""

    name = "disk-full"
    what = "the server's disk filled under writers, searchers and a merger until writes are refused, and emptied again"
    own_server = True
    needs = "" if can_mount() else NEEDS

    def begin(self) -> None:
        self._disk = self.site.new_folder("disk")
        self._disk.mkdir(mode=0o711)
        options = f"size={DISK_MIB}m,mode=0711"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self._disk)], check=True)
        self.opened.callback(subprocess.run, ["umount", str(self._disk)], check=False)
        self._server = self.site.new_server("postgres", self._disk)
        self.opened.callback(self._server.close)
        with connected(self._server.url) as connection:
            set_server(connection, SMALL)

    @property
    def address(self) -> str:
        return self._server.url

    async def interrupt(self, application: str, traffic: Traffic) -> None:
        del application
        ballast = self._disk / "ballast"
        try:
            await eventually(lambda: self._fill(ballast) and traffic.is_refused(), "a write that the disk refuses")
        finally:
            ballast.unlink(missing_ok=True)
        await asyncio.to_thread(start, self._server.folder)

    @staticmethod
    def _fill(ballast: os.PathLike[str]) -> bool:
        """Take all room that is left."""
        with suppress(OSError), open(ballast, "ab", buffering=0) as file:  # noqa: PTH123 - it is appended to
            while file.write(bytes(BLOCK_BYTES)):
                pass
        return True
