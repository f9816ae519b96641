"""Write chunks, documents, deletions, sources and the log."""
