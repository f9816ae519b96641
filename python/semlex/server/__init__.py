"""Interfaces over the network and standard streams: the HTTP server and the MCP server."""
