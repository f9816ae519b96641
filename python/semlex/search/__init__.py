"""The search pipeline: a query, vector and keyword search, one ranking, results."""
