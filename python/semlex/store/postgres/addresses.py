"""Describe addresses of databases for messages, and say what is wrong with an address, without showing a password."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from semlex.errors import ConfigurationError

FORM = "postgresql://USER:PASSWORD@HOST:5432/DATABASE"
# The parts of a connection string that are shown, and what none of them contains in earnest.
_SLIPPED_IN = {
    "host": re.compile(r"[@;=]"),
    "hostaddr": re.compile(r"[^0-9a-fA-F.:,%]"),
    "port": re.compile(r"[^0-9,]"),
    "dbname": re.compile(r"[@;=]"),
    "user": re.compile(r"[;=:]"),
    "service": re.compile(r"[@;=]"),
}
_SECRETS = ("password", "sslpassword")
_ENCODED = re.compile(r"(?<=[:=])[^:@&=\s']*%[^:@&=\s']*(?=[@&\s']|$)")
_SCHEME = re.compile(r"(?P<jdbc>jdbc:)?(?P<name>[a-z][a-z0-9]*)(?P<driver>\+[a-z0-9]+)?://", re.IGNORECASE)
_POSTGRES = ("postgresql", "postgres")


def describe(url: str) -> str:
    """Return host, port, database, user and service of a connection string, without the password; refuse a bad one."""
    if not isinstance(url, str):
        raise ConfigurationError(f"the database URL must be a string such as {FORM}; got {type(url).__name__}")
    if not url.strip():
        # libpq would choose a server itself; an empty variable is rarely intended.
        raise ConfigurationError(
            f"the database URL is empty; name a server ({FORM}), or leave the URL out (db_url=None, no --database) "
            "to use the embedded Postgres"
        )
    try:
        parts = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):
        parts = None
    # libpq also takes strings in which an unescaped password has slipped into a part that is shown.
    if parts is None or any(_SLIPPED_IN[name].search(str(parts.get(name) or "")) for name in _SLIPPED_IN):
        in_user = parts is not None and ":" in str(parts.get("user") or "")
        problem = "the user's name contains a ':'; write the password as in " + FORM if in_user else _problem(url)
        raise ConfigurationError(f"the database URL cannot be used: {problem}")
    shown = {name: parts[name] for name in _SLIPPED_IN if parts.get(name)}
    return " ".join(f"{name}={value}" for name, value in shown.items()) or "the default server"


def describe_connection(connection: psycopg.AsyncConnection[Any]) -> str:
    """Return the host, port, database and user with which a connection was made."""
    info = connection.info
    return f"host={info.host} port={info.port} dbname={info.dbname} user={info.user}"


def _problem(url: str) -> str:
    """Return what is wrong with a connection string that cannot be used, with a remedy."""
    if url != url.strip() or url[:1] in "'\"":
        return "it begins or ends with a blank or a quotation mark; remove that"
    scheme = _SCHEME.match(url)
    if scheme is None:
        if "=" in url:
            return (
                "it is read as name=value pairs; separate them with blanks, and put a value with blanks, quotes "
                f"or backslashes in single quotes (password='my secret'), or write {FORM}"
            )
        return f"it does not begin with postgresql://; put that in front of HOST:PORT/DATABASE, as in {FORM}"
    if scheme["name"].lower() not in _POSTGRES:
        return (
            f"{scheme[0]} is not PostgreSQL; semlex needs PostgreSQL with pgvector ({FORM}); leave the URL out to "
            "use the embedded server"
        )
    if scheme["jdbc"] or scheme["driver"] or scheme["name"] not in _POSTGRES:
        return f"it begins with {scheme[0]}, which other programs understand; begin it with postgresql:// instead"
    return (
        "special characters in user and password must be percent-encoded (% as %25, @ as %40, "
        ": as %3A, / as %2F, ? as %3F, # as %23, a blank as %20; in Python: urllib.parse.quote(password, safe='')); "
        "the port is a number; after a '?', only libpq's parameters are known (sslmode, connect_timeout, …)"
    )


def without_password(message: str, url: str | None) -> str:
    """Remove the passwords of an address (the user's, that of a key file) from a message."""
    # Passwords are removed only where they are written as in an address, because a password may be an ordinary word.
    if not url:
        return message
    message = message.replace(url, "***")
    try:
        parts = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):
        return message
    secrets = {str(parts[name]) for name in _SECRETS if parts.get(name)}
    for secret in secrets:
        forms = "|".join(re.escape(form) for form in dict.fromkeys((secret, quote(secret, safe=""))))
        message = re.sub(rf"(:|password\s*=\s*'?)(?:{forms})(?=@|'|\s|&|$)", r"\1***", message)
    # Any character may be encoded, also one that need not be.
    return _ENCODED.sub(lambda found: "***" if unquote(found[0]) in secrets else found[0], message)
