"""
What a request of the Ollama surface asks for, as data.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from enum import Enum

from attrs import frozen

from slotgate.surfaces.generation import PATHS, Generation
from slotgate.surfaces.ollama.errors import OllamaError

CHAT = "/v1/chat/completions"
COMPLETION = "/completion"
INFILL = "/infill"


class Purpose(Enum):
    """What a request to ``/api/chat`` or ``/api/generate`` is for."""

    GENERATE = "generate"
    #: Without a prompt: nothing is generated, the model is to be loaded.
    LOAD = "load"
    #: Without a prompt and with ``keep_alive`` 0: the model is to go.
    UNLOAD = "unload"


@frozen
class Asked:
    """
    A request to ``/api/chat`` or ``/api/generate``.

    :ivar chats: which of the two, and so the shape of the answer.
    :ivar model: as the client said it; answers repeat it.
    :ivar stream: whether it wants the answer in pieces.
    :ivar keep_alive: seconds, infinity for ever, ``None`` where it does not say.
    :ivar fields: the request as it came: session ids are looked for in it.
    :ivar path: of llama-server, for this request.
    :ivar body: what goes there, without the model.
    :ivar alternatives: whether it wants the tokens that were not chosen, too.
    """

    chats: bool
    purpose: Purpose
    model: str
    stream: bool
    keep_alive: float | None
    fields: Mapping[str, object]
    path: str
    body: Mapping[str, object]
    alternatives: bool = False

    def generation(self, model: str) -> Generation:
        """
        The request as one for llama-server.

        :param model: the name that a route is looked for with (:func:`~.names.resolved`).
        :raises OllamaError: it is nested too deeply.
        """
        fields = {"model": model, **self.body}
        try:
            raw = json.dumps(fields).encode("ascii")
        except RecursionError:
            raise OllamaError(400, "the request body is nested too deeply") from None
        return Generation(
            path=self.path,
            raw=raw,
            fields=fields,
            model=model,
            system_prompt=PATHS[self.path](fields),
        )

    @property
    def asks_much(self) -> bool:
        """Whether it wants what not every model can do."""
        thinks = self.fields.get("think") not in (None, False)
        return thinks or bool(self.body.get("tools")) or self._shows_images

    @property
    def _shows_images(self) -> bool:
        said = self.body.get("messages")
        return isinstance(said, list) and any(
            isinstance(part, Mapping) and part.get("type") == "image_url"
            for message in said
            if isinstance(message, Mapping) and isinstance(message.get("content"), list)
            for part in message["content"]
        )

    def check(self, capabilities: Collection[str]) -> None:
        """
        Refuse what the model can not do and llama-server would leave out without a word.

        :param capabilities: of :func:`~.models.capabilities`, from the server's properties.
        :raises OllamaError: it can not.
        """
        if self.fields.get("think") not in (None, False) and "thinking" not in capabilities:
            raise OllamaError(400, f'"{self.model}" does not support thinking')
        if self.body.get("tools") and "tools" not in capabilities:
            raise OllamaError(400, f'"{self.model}" does not support tools')
        if self._shows_images and "vision" not in capabilities:
            raise OllamaError(400, f'"{self.model}" does not support images')
