"""Read the database: vector and keyword search, filters, rows of hits, figures."""
