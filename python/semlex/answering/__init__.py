"""From hits to an answer: passages for a prompt, what is written from them, and every citation looked up."""
