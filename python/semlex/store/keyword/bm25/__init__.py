"""The keyword index: true BM25 in ordinary tables."""
