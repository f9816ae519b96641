"""How well a collection can be searched, found out from its own headings."""
