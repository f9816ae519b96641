"""What errors say, in the words of an assistant: tools where there is one, commands for the person who has a shell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

# Command -> the tool that does the same.
TOOLS = {
    "collections": "list_collections",
    "fields": "list_fields",
    "index": "index_folder",
    "jobs": "job_status",
    "optimize": "optimize_search",
    "outline": "outline",
    "reindex": "reindex_collection",
    "search": "search",
    "show": "get_document",
    "status": "collection_stats",
    "sync": "index_folder",
    "why": "why",
}
_FLAGS = "dry-run|exact|keyword|restart|rollback|sql|values|yes"
_COMMAND = re.compile(
    rf"semlex ({'|'.join(TOOLS)})\b(?! (?:add|cancel|remove|retry)\b)"
    rf"((?: (?:--(?:{_FLAGS})\b|--?[a-z-]+ [^\s;,()]+|[A-Z]{{2,}}\b|'[^']*'|/[^\s;,()]+))*)"
)
_ANY_COMMAND = re.compile(r"\bsemlex [a-z]")
FOR_THE_PERSON = " (commands that begin with semlex are for the person who has set this server up)"


def in_tools(message: str, available: Container[str]) -> str:
    """A message whose commands are tools, as far as there are any."""

    def named(found: re.Match[str]) -> str:
        tool = TOOLS[found[1]]
        return f"the tool {tool}" if tool in available else found[0]

    told = _COMMAND.sub(named, message)
    return told + FOR_THE_PERSON if _ANY_COMMAND.search(told) else told
