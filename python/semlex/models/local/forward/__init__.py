"""Forms of the forward pass: one specification, faster forms tested against it."""
