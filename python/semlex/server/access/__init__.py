"""Who may ask: tokens, rights, hosts and origins."""
