"""Embedding models: one protocol, one module for each kind of model."""
