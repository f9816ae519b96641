"""An example of each command; and `with_server`, which completes commands in messages so that users can type them."""

from __future__ import annotations

import re
import shlex
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Panel -> command -> its module below semlex.cli.commands, and the function or group in it.
PANELS: dict[str, dict[str, str]] = {
    "Commands": {
        "try": "search:try_folder",
        "index": "index:index",
        "search": "search:search",
        "ask": "ask:ask",
        "why": "search:why",
        "shell": "shell:shell",
        "status": "status:status",
        "delete": "documents:delete",
        "config": "config:config_app",
        "doctor": "doctor:doctor_app",
        "prove": "prove:prove",
    },
    "Groups of commands": {
        "documents": "documents:documents_app",
        "fields": "fields:fields_app",
        "collections": "collections:collections_app",
        "models": "models:models_app",
        "maintain": "maintain:maintain_app",
        "jobs": "jobs:jobs_app",
        "eval": "evaluate:evaluation_app",
        "postgres": "postgres:postgres_app",
    },
    "Folders and tables in sync, prompts, servers": {
        "sync": "index:sync",
        "follow": "follow:follow",
        "context": "ask:context",
        "ui": "serve:ui",
        "serve": "serve:serve_app",
        "mcp": "mcp:mcp",
        "worker": "jobs:worker",
    },
}
PLACES = {name: place.split(":") for commands in PANELS.values() for name, place in commands.items()}
# A group's name alone has the example of what it does without a command.
EXAMPLES: dict[str, str] = {
    "try": 'semlex try ./docs "how often is a key rotated?"',
    "index": "semlex index ./docs -c handbook",
    "search": "semlex search how often is a key rotated -c handbook --top-k 3",
    "ask": 'semlex ask "how often is a key rotated?" -c handbook',
    "why": "semlex why keys.md how often is a key rotated -c handbook",
    "shell": "semlex shell -c handbook",
    "status": "semlex status -c handbook --fields documents,chunks",
    "delete": "semlex delete keys.md -c handbook --dry-run",
    "config": "semlex config --json",
    "config show": "semlex config show --json",
    "config init": "semlex config init --folder",
    "config trust": "semlex config trust .",
    "config untrust": "semlex config untrust .",
    "doctor": "semlex doctor -c handbook",
    "doctor run": "semlex doctor run -c handbook",
    "doctor models": "semlex doctor models --model static",
    "doctor server": "semlex doctor server --json",
    "prove": "semlex prove --minutes 5 --only kill,crash",
    "documents": "semlex documents -c handbook --fields state,source_document",
    "documents list": "semlex documents list -c handbook",
    "documents show": "semlex documents show keys.md -c handbook",
    "documents outline": "semlex documents outline keys.md -c handbook",
    "documents add": "semlex documents add notes.jsonl -c notes",
    "documents import": "semlex documents import vectors.parquet -c imported --vector-field embedding",
    "documents preview": "semlex documents preview ./docs --chunk-tokens 200",
    "documents sources": "semlex documents sources -c handbook",
    "documents move": "semlex documents move docs ./manual -c handbook",
    "fields": "semlex fields -c handbook --values",
    "fields list": "semlex fields list -c handbook",
    "fields add": "semlex fields add year number -c handbook",
    "fields remove": "semlex fields remove year -c handbook",
    "fields facets": "semlex fields facets @source year -c handbook --filter 'year >= 2020'",
    "collections": "semlex collections --json",
    "collections list": "semlex collections list --json",
    "collections drop": "semlex collections drop handbook --yes",
    "collections describe": "semlex collections describe 'Rules for employees: leave, travel, security' -c handbook",
    "collections dump": "semlex collections dump ./backup -c handbook",
    "collections restore": "semlex collections restore ./backup -c handbook_again",
    "models": "semlex models -c handbook",
    "models list": "semlex models list -c handbook",
    "models pull": "semlex models pull Qwen/Qwen3-Embedding-0.6B",
    "models known": "semlex models known",
    "models set": "semlex models set static -c handbook --dry-run",
    "models fill": "semlex models fill -c handbook --model static",
    "models rollback": "semlex models rollback -c handbook",
    "models drop": "semlex models drop 1 -c handbook",
    "maintain": "semlex maintain --help",
    "maintain optimize": "semlex maintain optimize -c handbook",
    "maintain create-index": "semlex maintain create-index -c handbook --kind hnsw --dry-run",
    "maintain reindex": "semlex maintain reindex -c handbook",
    "maintain rechunk": "semlex maintain rechunk -c handbook --chunk-tokens 300 --dry-run",
    "maintain enrich": "semlex maintain enrich -c handbook --enrich http://127.0.0.1:8000/v1#llama --dry-run",
    "maintain migrate": "semlex maintain migrate --dry-run",
    "jobs": "semlex jobs --state failed",
    "jobs list": "semlex jobs list --state failed",
    "jobs submit": "semlex jobs submit sync ./docs -c handbook --wait --timeout 60",
    "jobs show": "semlex jobs show 9f1c4c6e-1c5e-4a53-9a39-6f3f0f0d1a2b",
    "jobs cancel": "semlex jobs cancel 9f1c4c6e-1c5e-4a53-9a39-6f3f0f0d1a2b",
    "jobs retry": "semlex jobs retry 9f1c4c6e-1c5e-4a53-9a39-6f3f0f0d1a2b",
    "eval": "semlex eval ./judged --fusion score",
    "eval run": "semlex eval run ./judged -k 10",
    "eval tune": "semlex eval tune ./judged",
    "eval calibrate": "semlex eval calibrate ./judged --output curve.json",
    "eval checkup": "semlex eval checkup -c handbook --sample 50",
    "eval queries": "semlex eval queries -c handbook --limit 10",
    "postgres": "semlex postgres",
    "postgres status": "semlex postgres status",
    "postgres start": "semlex postgres start --keep-alive 86400",
    "postgres stop": "semlex postgres stop",
    "sync": "semlex sync ./docs -c handbook --dry-run",
    "follow": "semlex follow articles -c news --text title,body --metadata author",
    "context": 'semlex context "how often is a key rotated?" -c handbook --tokens 2000',
    "ui": "semlex ui -c handbook --judgements ./judged",
    "serve": "semlex serve -c handbook --port 8321",
    "serve run": "semlex serve run -c handbook --port 8321",
    "serve token": "semlex serve token",
    "serve token add": "semlex serve token add ann --rights read --collection handbook",
    "serve token list": "semlex serve token list",
    "serve token remove": "semlex serve token remove ann",
    "mcp": "semlex mcp -c handbook --print-config claude-desktop",
    "worker": "semlex worker --allow ./docs --drain",
}

# Commands that use no server, or one of their own.
WITHOUT_SERVER = ("prove", "documents preview", "config", "models pull", "models known", "doctor models", "serve token")
# The group of commands for the embedded server, which take no --database.
EMBEDDED = "postgres"
# Other commands whose completed form needs no --collection.
WITHOUT_COLLECTION = frozenset(
    (
        "try",
        "collections",
        "collections list",
        "collections drop",
        "maintain",
        "maintain migrate",
        "worker",
        "eval",
        "jobs show",
        "jobs cancel",
        "jobs retry",
        "doctor server",
    )
)
_COMMAND = re.compile(rf"\bsemlex ({'|'.join(sorted(EXAMPLES, key=len, reverse=True))})(?![\w-])")

# The options --database, --data-dir and --collection of this command line, each "" if it was not given.
_options: ContextVar[tuple[str, str, str]] = ContextVar("options", default=("", "", ""))


def set_server(database_url: str | None, data_dir: Path | None, collection: str | None = None) -> None:
    """Remember the server and the collection that the command line names."""
    _options.set(
        (
            "" if database_url is None else " --database …",
            "" if data_dir is None else f" --data-dir {shlex.quote(str(data_dir))}",
            "" if collection is None else f" --collection {shlex.quote(collection)}",
        )
    )


def with_server(text: str) -> str:
    """Return a message whose commands are completed with the server and the collection of this command line."""
    database, data_dir, collection = _options.get()

    def named(found: re.Match[str]) -> str:
        if found[1].startswith(WITHOUT_SERVER):
            return found[0]
        line = text[found.end() :].partition("\n")[0]
        if found[1].startswith(EMBEDDED):
            return f"{found[0]}{data_dir}"
        without = found[1] in WITHOUT_COLLECTION or "--collection" in line
        return f"{found[0]}{database}{data_dir}{'' if without else collection}"

    return _COMMAND.sub(named, text)
