"""Settings as a TOML file: each with what it is, in its section; what is not set stands behind a ``#``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError
from semlex.settings.files import JSON_SUFFIX
from semlex.settings.table import SECTIONS, SETTINGS
from semlex.settings.values import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

NONE = (None, ())


def as_toml(values: Mapping[str, Any]) -> str:
    """A file that says these values, and explains all others."""
    built_in = Settings().values()
    lines = [
        "# Settings of semlex. What stands behind a # is the default, or an example where it says so.",
        "# Options of a command and the environment go before this file: `semlex config show` tells.",
    ]
    for section in SECTIONS:
        lines += ["", f"[{section}]"]
        for setting in (one for one in SETTINGS if one.section == section):
            value = values.get(setting.name)
            default = built_in[setting.name]
            is_example = default in NONE
            lines.append(f"# {setting.what}{'; an example:' if is_example and value in NONE else ''}")
            if value not in NONE:
                lines.append(f"{setting.key} = {_literal(value)}")
            else:
                lines.append(f"# {setting.key} = {_literal(setting.example if is_example else default)}")
    return "\n".join(lines) + "\n"


def write_template(path: Path, *, replace: bool = False) -> None:
    """Writes a file with all settings, each behind a ``#``; it is readable by its owner alone."""
    if path.suffix.lower() == JSON_SUFFIX:
        raise ConfigurationError(f"{path} would be JSON, which holds no comments; let SEMLEX_CONFIG name a .toml file")
    if path.exists() and not replace:
        raise ConfigurationError(f"{path} exists; --force replaces it by a new one, and what it says is lost")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(as_toml({}), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; choose another place") from None


def _literal(value: Any) -> str:
    """A value of a setting in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_literal(one) for one in value)}]"
    if isinstance(value, (str, Path)):
        # TOML's basic strings are JSON's, but for one control character more that must be escaped.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
