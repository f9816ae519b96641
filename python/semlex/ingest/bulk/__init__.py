"""Load rows that already have vectors from Arrow, Parquet, NumPy and JSON Lines, in batches of bounded size."""
