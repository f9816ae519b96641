"""Retrievers as settings say."""
