"""The embedded Postgres, out of a wheel."""
