"""Collections for assistants, by the Model Context Protocol. Needs the extra ``mcp``."""
