"""Options of calls, each declared once; checks, servers, the command line and pages are derived from them."""
