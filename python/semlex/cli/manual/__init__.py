"""What the help says beside the commands' own words: their panels, an example of each, and remedies."""
