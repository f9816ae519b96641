"""The way out: a query, its legs, one ranking, results."""
