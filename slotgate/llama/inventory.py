"""
What a server tells of its models, as it tells it: for surfaces that tell it on.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from attrs import frozen

from slotgate.llama.calls import Calls
from slotgate.llama.errors import ControlError


def _as_it_is(answer: object) -> object:
    return answer


@frozen
class Inventory:
    """Looks at the models of one server. Loads none, and wakes none."""

    _calls: Calls

    async def models(self) -> object:
        """
        ``GET /v1/models``.

        :raises ControlError: the server does not say.
        """
        return await self._calls.get("/v1/models", _as_it_is)

    async def props(self, model: str | None) -> Mapping[str, object]:
        """
        ``GET /props``, empty where the server does not say.

        :param model: which of a router's models; ``None``: there is one model.
        """
        query = "" if model is None else f"?model={quote(model, safe='')}&autoload=false"
        try:
            answer = await self._calls.get(f"/props{query}", _as_it_is)
        except ControlError:
            return {}
        return answer if isinstance(answer, dict) else {}
