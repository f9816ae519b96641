"""MCP server: gives assistants access to collections by the Model Context Protocol. Needs the extra ``mcp``."""
