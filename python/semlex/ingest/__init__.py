"""The way in: files, text, chunks, vectors, rows."""
