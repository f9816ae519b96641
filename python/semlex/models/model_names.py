"""Who decides where texts and keys go: what a model's name leads to, and which host a key was given for.

A name that somebody else wrote (into a database, into a file of a folder that was copied) must send nothing and load
nothing. Whoever uses such a name asks here first.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

# In front of the name of a model that runs on this machine.
LOCAL_PREFIXES = ("sentence-transformers:", "cross-encoder:")
# In front of the address of a reranker's server.
_ADDRESS_PREFIXES = ("tei+", "llm+")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
# Rerankers that ask a server without a colon in their name, or may do so.
_SERVER_NAMES = frozenset({"auto", "cohere"})
# The key of servers that have no account of their own, and the setting that names the server it is for.
MODEL_VARIABLES = {
    "SEMLEX_EMBEDDING_API_KEY": "SEMLEX_EMBEDDING_MODEL",
    "SEMLEX_RERANKER_API_KEY": "SEMLEX_RERANKER_MODEL",
}


def leads_to(name: str) -> Literal["server", "folder"] | None:
    """What a model's name leads to.

    Args:
        name: As for `semlex.embedding.registry.choose_embedder` or `semlex.reranking.registry.choose_reranker`.

    Returns:
        ``server``: texts would be sent away. ``folder``: files of a path would be loaded; a hub id counts as one where
        the working directory has a folder of that name. None: a keyword, or a hub id.
    """
    local = name
    for prefix in LOCAL_PREFIXES:
        local = local.removeprefix(prefix)
    # One letter and a colon begin a path of Windows.
    if "://" in local or re.match(r"[\w+-]{2,}:", local) or local in _SERVER_NAMES:
        return "server"
    return None if _HUB_ID.fullmatch(local) and ".." not in local and not Path(local).is_dir() else "folder"


def host_of(name: str) -> str | None:
    """Host and port of an address, or of a name that holds one; None where there is none.

    Args:
        name: ``http(s)://HOST[:PORT]…``, also with ``tei+`` or ``llm+`` in front.
    """
    for prefix in _ADDRESS_PREFIXES:
        name = name.removeprefix(prefix)
    if not name.startswith(("http://", "https://")):
        return None
    try:
        parts = urlsplit(name)
        port = parts.port
    except ValueError:
        return None
    return f"{parts.hostname}:{port or {'http': 80, 'https': 443}[parts.scheme]}"


def key_for(variable: str, address: str) -> tuple[str | None, str]:
    """The key that the environment holds for a server without an account of its own.

    A key belongs to one host. Where the environment names an address beside the key, it is that one's; else it is for
    the address that the program's user names.

    Args:
        variable: Environment variable of the key.
        address: The server's.

    Returns:
        The key, or None; and how messages call its variable.
    """
    key = os.environ.get(variable, "").strip() or None
    setting = MODEL_VARIABLES[variable]
    host = host_of(os.environ.get(setting, ""))
    if key is None or host is None or host == host_of(address):
        return key, variable
    return None, f"{variable} (the one that is set is for {host}, which {setting} names)"
