"""The values that travel through semlex: documents in, queries, results out. No input or output."""
