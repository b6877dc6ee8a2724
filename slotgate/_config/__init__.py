"""How the configuration is read, checked and described."""
