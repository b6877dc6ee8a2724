"""Whether the configured servers are set up so that slotgate can do its work."""
