"""The HTTP server and its tokens."""
