"""
A gateway that makes a llama.cpp ``llama-server`` with one slot behave like a server with
unlimited slots that survive restarts.

Importing this package installs no reactor and imports no Klein.
"""

from slotgate.config import Config, ConfigError, load_config

__version__ = "0.1.0.dev0"

__all__ = ["Config", "ConfigError", "__version__", "load_config"]
