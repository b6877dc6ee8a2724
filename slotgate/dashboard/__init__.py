"""The dashboard: what goes on, as a page for people."""
