"""Tables that other libraries keep their vectors in: what they look like, which one is meant, their rows."""
