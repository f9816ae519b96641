"""The settings: from the table that they are declared in, and the options of the commands."""

from __future__ import annotations

from docs.generate.command_line import every_parameter
from docs.generate.markdown import table, text
from semlex.settings.table import NONE, SETTINGS, Setting, Settings


def settings() -> str:
    """Return the table of the settings."""
    options = {one.name: max(one.opts, key=len) for one in every_parameter()}
    rows = (
        [
            f"`{one.name}`",
            _codes(f"[{one.section}]", *one.keys),
            _codes(*one.variables),
            _codes(*(options[one.attribute],) if one.attribute in options else ()),
            _default(one),
            text(one.what),
        ]
        for one in SETTINGS
    )
    return table(["name", "section, other names in it", "environment variables", "option", "default", "meaning"], rows)


def _codes(*names: str) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _default(setting: Setting) -> str:
    value = Settings().value(setting)
    if value in NONE:
        return ""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
