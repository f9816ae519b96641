"""Everything that speaks to Postgres."""
