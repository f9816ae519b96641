"""Read the database: legs of a search, filters, rows of hits, figures."""
