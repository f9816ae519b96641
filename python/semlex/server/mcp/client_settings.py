"""The lines for the settings of assistants, as their own manuals have them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import TypeAlias

# Command and arguments -> the lines to write or type.
Form: TypeAlias = Callable[[str, list[str]], str]
NAME = "semlex"


def _servers(key: str, **more: str) -> Form:

    def form(command: str, arguments: list[str]) -> str:
        return json.dumps({key: {NAME: {**more, "command": command, "args": arguments}}}, ensure_ascii=False)

    return form


def _typed(*words: str) -> Form:
    return lambda command, arguments: shlex.join([*words, command, *arguments])


def _toml(command: str, arguments: list[str]) -> str:
    # Texts of JSON are texts of TOML.
    return f"[mcp_servers.{NAME}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(arguments)}"


# Name -> (where it goes, its form).
CLIENTS: dict[str, tuple[str, Form]] = {
    "claude-desktop": ("into claude_desktop_config.json (Settings, Developer, Edit Config)", _servers("mcpServers")),
    "claude-code": ("to be typed in a shell", _typed("claude", "mcp", "add", NAME, "--")),
    "codex": ("into ~/.codex/config.toml", _toml),
    "cursor": ("into ~/.cursor/mcp.json, or .cursor/mcp.json of a project", _servers("mcpServers")),
    "gemini-cli": ("into ~/.gemini/settings.json", _servers("mcpServers")),
    "vscode": ("into .vscode/mcp.json of a workspace, or mcp.json of the user", _servers("servers", type="stdio")),
    "windsurf": ("into ~/.codeium/windsurf/mcp_config.json", _servers("mcpServers")),
    "zed": ("into the settings of Zed (zed: open settings file)", _servers("context_servers")),
}
