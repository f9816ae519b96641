"""Rows that bring their vectors: Arrow, Parquet, NumPy and JSON Lines, in batches of bounded size."""
