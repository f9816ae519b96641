"""The commands about work in the background."""
