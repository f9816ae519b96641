"""Tokens in a file: each with a name, rights, collections, and the hash of a secret that is shown once."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

from semlex.errors import ConfigurationError, SemlexError
from semlex.options.declare import Rights
from semlex.settings.sources import file_stamp
from semlex.store.schema.names import checked_identifier
from semlex.types.documents import utc_now
from semlex.whole_file import whole_file

if TYPE_CHECKING:
    from pathlib import Path

if sys.platform != "win32":
    import fcntl

ORDER: tuple[Rights, ...] = get_args(Rights)


class Reaching:
    """Rights and collections of a caller."""

    __slots__ = ()
    rights: Rights
    collections: frozenset[str] | None

    def may(self, needed: Rights) -> bool:
        """Return whether the rights include the needed one."""
        return ORDER.index(self.rights) >= ORDER.index(needed)

    def sees(self, collection: str) -> bool:
        """Return whether a collection of this name may be accessed, whether or not it exists."""
        return self.collections is None or collection in self.collections


@dataclass(frozen=True, slots=True)
class Caller(Reaching):
    """The caller of a request, with its rights and collections."""

    name: str  # of the token; "" without tokens
    rights: Rights  # the highest; it includes those before it
    collections: frozenset[str] | None = None  # those that it sees; None: all


PREFIX = "semlex_"
SECRET_BYTES = 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
MAX_FILE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Token:
    """A token as the file lists it."""

    caller: Caller
    digest: bytes  # SHA-256 of the secret
    expires: datetime | None = None  # None: never

    @property
    def has_expired(self) -> bool:
        """Whether the token has expired."""
        return self.expires is not None and self.expires <= utc_now()


class TokenFile:
    """A file of tokens; the file need not exist, and each call reads it again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[Token, ...]:
        """Return all tokens, sorted by name."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ConfigurationError(
                f"token file {self.path} cannot be read: {error.strerror}; correct its permissions"
            ) from None
        try:
            rows = json.loads(content[:MAX_FILE_BYTES])["tokens"]
            tokens = tuple(_token(name, row) for name, row in sorted(rows.items()))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ConfigurationError(
                f"token file {self.path} was not written by 'semlex serve token add'; correct it, or move it away"
            ) from None
        return tokens

    def add(self, name: str, rights: Rights, collections: tuple[str, ...] = (), expires: datetime | None = None) -> str:
        """Add a token and return its secret, which cannot be shown again."""
        if not NAME.fullmatch(name):
            raise ConfigurationError(
                f"token name {name[:80]!a}: use up to 64 letters, digits and . _ - @; begin with a letter or digit"
            )
        if rights not in ORDER:
            raise ConfigurationError(f"rights must be one of {', '.join(ORDER)}; got {rights[:80]!a}")
        if expires is not None and expires <= utc_now():
            raise ConfigurationError(f"expires must lie in the future; {expires.isoformat()} is past")
        for collection in collections:
            checked_identifier("collection", collection)
        with self._changing():
            known = self.read()
            if any(token.caller.name == name for token in known):
                raise ConfigurationError(
                    f"a token {name!r} exists already; to replace it, first run: semlex serve token remove {name}"
                )
            secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
            caller = Caller(name, rights, frozenset(collections) if collections else None)
            self._write((*known, Token(caller, _digest(secret), expires)))
        return secret

    def remove(self, name: str) -> None:
        """Remove a token; a running server notices it at the next request."""
        with self._changing():
            known = self.read()
            kept = tuple(token for token in known if token.caller.name != name)
            if len(kept) == len(known):
                names = ", ".join(token.caller.name for token in known) or "none"
                raise ConfigurationError(f"unknown token {name[:80]!a}; known tokens: {names}")
            self._write(kept)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold a lock on the file's folder, so that two simultaneous changes are both kept."""
        folder: int | None = None
        # Some network drives have no locks; reading and writing report other problems of the folder.
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(self.path.parent, os.O_RDONLY)
            if sys.platform != "win32":
                fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if folder is not None:
                os.close(folder)

    def _write(self, tokens: tuple[Token, ...]) -> None:
        rows: dict[str, Any] = {}
        for token in tokens:
            caller = token.caller
            collections = None if caller.collections is None else sorted(caller.collections)
            row = {"rights": caller.rights, "collections": collections, "sha256": token.digest.hex()}
            ends = {} if token.expires is None else {"expires": token.expires.isoformat()}
            rows[caller.name] = row | ends
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(self.path) as file:
                json.dump({"tokens": rows}, file, indent=1)
                file.write("\n")
        except OSError as error:
            raise ConfigurationError(
                f"token file {self.path} cannot be written: {error.strerror}; give another path"
            ) from None


def _token(name: str, row: Any) -> Token:
    collections = row["collections"]
    if row["rights"] not in ORDER or not isinstance(collections, (list, type(None))):
        raise ValueError
    if not all(isinstance(one, str) for one in collections or ()):
        raise ValueError
    digest = bytes.fromhex(row["sha256"])
    if len(digest) != hashlib.sha256().digest_size:
        raise ValueError
    expires = None if row.get("expires") is None else datetime.fromisoformat(row["expires"])
    if expires is not None and expires.utcoffset() is None:
        raise ValueError
    return Token(Caller(name, row["rights"], None if collections is None else frozenset(collections)), digest, expires)


# A secret is 256 random bits, so one round of SHA-256 hides it: reading the file does not give access.
def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def caller_of(authorization: bytes | None, tokens: tuple[Token, ...]) -> Caller | None:
    """Return the caller whose token the ``Authorization`` header has; None if it is unknown or has expired."""
    scheme, _, secret = (authorization or b"").partition(b" ")
    if scheme.lower() != b"bearer" or not secret:
        return None
    digest = hashlib.sha256(secret.strip()).digest()
    found = [token for token in tokens if hmac.compare_digest(token.digest, digest)]
    return found[0].caller if found and not found[0].has_expired else None


logger = logging.getLogger("semlex.server")


class WatchedTokens:
    """The tokens of a file, read again when the file changes; checking for that at every request takes microseconds."""

    def __init__(self, file: TokenFile, refused: Callable[[], None] = lambda: None) -> None:
        self._file, self._refused = file, refused
        # The stamp first: a file that is written meanwhile is read again.
        self._stamp = self._refused_stamp = file_stamp(file.path)
        self._tokens: tuple[Token, ...] = file.read()
        if not self._tokens:
            logger.warning(
                "the token file %s %s: every request is refused until a token exists; to make one: "
                "semlex serve token add NAME --token-file %s",
                *(file.path, "does not exist" if self._stamp is None else "has no token", shlex.quote(str(file.path))),
            )

    def current(self) -> tuple[Token, ...]:
        """Return the valid tokens; if the file became unusable, the former ones until it can be read again."""
        stamp = file_stamp(self._file.path)
        if stamp != self._stamp:
            try:
                self._tokens = self._file.read()
            except SemlexError as error:
                if stamp != self._refused_stamp:
                    logger.error("the changed token file is not used: %s", error)  # noqa: TRY400 - not a failure of semlex
                    self._refused()
                self._refused_stamp = stamp
            else:
                self._stamp = stamp
        return self._tokens

    def caller(self, token: str) -> Caller | None:
        """Return the caller of a token; None if it is unknown."""
        return caller_of(b"Bearer " + token.encode("utf-8", "replace"), self.current())
