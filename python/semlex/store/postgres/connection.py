"""The driver's connection, as the store's functions take it."""

from __future__ import annotations

from typing import Any

import psycopg

Connection = psycopg.AsyncConnection[Any]
