"""Rerankers: score how well candidates answer a query."""
