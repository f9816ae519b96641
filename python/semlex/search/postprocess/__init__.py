"""What is made of hits after a search: each function works by itself on hits or on chunks with their places."""
