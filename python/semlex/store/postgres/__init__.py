"""Connections, transactions and errors of Postgres; nothing here knows the tables of semlex."""
