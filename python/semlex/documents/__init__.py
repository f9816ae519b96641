"""From files to chunks."""
