"""What is written: chunks, documents, vectors, deletions, the log."""
