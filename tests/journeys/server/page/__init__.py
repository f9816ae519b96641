"""What the page shows, in a browser."""
