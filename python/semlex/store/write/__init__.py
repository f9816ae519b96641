"""Write chunks, documents, sources and the ingestion log, and delete chunks and documents."""
