"""The search pipeline: it takes a query through vector and keyword search and their fusion to results."""
