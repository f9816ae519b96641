"""SQL of `semlex prove`: its own schema, what tables hold, and how backends are ended and rows damaged."""
