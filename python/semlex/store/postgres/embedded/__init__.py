"""The embedded Postgres, whose programs come from a wheel."""
