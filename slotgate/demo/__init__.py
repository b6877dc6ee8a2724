"""
``slotgate demo``: what slotgate does for one real llama-server, shown on a terminal.
"""

from slotgate.demo.command import main

__all__ = ["main"]
