"""Hybrid search on the Postgres you already have."""
