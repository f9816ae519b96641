"""Access to Postgres: the schema, connections, writes, queries and indexes."""
