"""A Postgres of one's own, out of a wheel."""
