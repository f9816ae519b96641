"""The server: connections, transactions, errors; no table of semlex."""
