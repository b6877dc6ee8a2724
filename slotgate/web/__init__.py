"""The HTTP side: Klein application, relay, limits."""
