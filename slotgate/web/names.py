"""
The names that clients have for models.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from slotgate.reloading import Settings
from slotgate.slots.backend import Backend
from slotgate.surfaces.ollama.names import resolved


@frozen
class Names:
    """
    What is meant by a name with a tag that nobody gave: clients that know models from Ollama's
    list say ``:latest`` on every surface.
    """

    _settings: Settings
    _backends: Mapping[str, Backend]

    def meant(self, asked: str) -> str:
        """The name to look for a route and a model with."""
        return resolved(asked, self._known())

    def _known(self) -> set[str]:
        """Names of models that are known without asking anybody."""
        names = {route.model for route in self._settings.config.routes}
        for backend in self._backends.values():
            names |= backend.tracker.names()
        return names
