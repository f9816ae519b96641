"""The models of collections, asked by themselves."""
