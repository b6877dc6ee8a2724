"""The ``llama-server`` that slotgate talks to."""
