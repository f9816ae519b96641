"""Tables, and what is known of them."""
