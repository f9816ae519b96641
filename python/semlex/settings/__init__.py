"""Every setting and where it comes from."""
