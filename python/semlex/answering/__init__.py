"""From hits to an answer: passages for a prompt, the answer written from them, and every citation checked."""
