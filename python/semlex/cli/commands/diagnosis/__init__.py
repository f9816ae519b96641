"""The commands that say how well a collection can be searched."""
