"""Writing: chunks, documents, deletions, sources, the log."""
