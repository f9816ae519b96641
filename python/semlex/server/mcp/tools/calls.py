"""A call of a tool around its work: results as structure and text, progress while it goes on."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from mcp.types import CallToolResult, TextContent
from pydantic_core import from_json

from semlex.chat.untrusted import UNSEEN, visible
from semlex.server.mcp.presentation import cleaned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcp.server.mcpserver import Context
    from pydantic import BaseModel

    from semlex.ingest.progress import Progress

SECONDS_BETWEEN_NOTICES = 0.2
# What may have to be taken out of a result, as JSON writes it: a look at the whole costs less than one at each text.
HIDDEN = re.compile(rf"{UNSEEN.pattern}|[\x85\u2028\u2029]|\\[rfbu]")
ESCAPES = ("\\r", "\\f", "\\b", "\\u")


def told(value: BaseModel, text: str) -> CallToolResult:
    """A result for programs and, in a few lines, for a model that reads text only; neither holds what nobody sees."""
    told = value.model_dump_json()
    structured = from_json(told)
    return CallToolResult(
        content=[TextContent(type="text", text=visible(text))],
        structured_content=cleaned(structured) if _may_hide(told) else structured,
    )


def _may_hide(told: str) -> bool:
    """Whether JSON may hold what has to be taken out of its texts. Most is ASCII, where that is seen sooner."""
    if told.isascii() and told.isprintable():
        return any(escape in told for escape in ESCAPES)
    return HIDDEN.search(told) is not None


@asynccontextmanager
async def progress_to(context: Context[Any, Any]) -> AsyncIterator[Callable[[Progress], None]]:
    """A progress callback that tells the client, at most five times a second; the last word is always told.

    Stages overlap and begin anew, and the protocol wants numbers that grow: so notices are numbered, and say in words
    how far the work has come.
    """
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    numbers = count(1)
    newest: list[Progress] = []

    def tell(progress: Progress) -> None:
        newest[:] = [progress]
        loop.call_soon_threadsafe(changed.set)

    async def send() -> None:
        while newest:
            progress = newest.pop()
            of = "" if progress.total is None else f" of {progress.total:,}"
            message = f"{progress.stage}: {progress.done:,}{of} {progress.unit}"
            await context.report_progress(next(numbers), None, message)

    async def keep_sending() -> None:
        while True:
            await changed.wait()
            changed.clear()
            await send()
            await asyncio.sleep(SECONDS_BETWEEN_NOTICES)

    sending = asyncio.create_task(keep_sending())
    try:
        yield tell
        await send()
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
