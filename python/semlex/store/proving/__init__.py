"""SQL of `semlex prove`: a schema of its own, what tables hold, and how backends are ended and rows damaged."""
