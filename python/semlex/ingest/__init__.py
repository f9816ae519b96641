"""Documents in: files, text, chunks, vectors, rows."""
