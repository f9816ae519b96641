"""How values are shown to people: texts that steer nothing, marked words, HTML. No input or output."""
