"""What there is, how it is, and what is wrong with it."""
