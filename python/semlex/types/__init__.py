"""The values that travel through semlex: documents, queries, results. No module here reads or writes anything."""
