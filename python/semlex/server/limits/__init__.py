"""How much may be asked, and how fast."""
