"""Keyword engines behind one interface; a score is called BM25 only if it is."""
