"""
``/api/pull`` of a model that is there. Nothing is downloaded: llama-server has its models.
"""

from __future__ import annotations

from attrs import frozen

from slotgate.surfaces.ollama._json import dump
from slotgate.surfaces.ollama.errors import OllamaError
from slotgate.surfaces.ollama.names import digest
from slotgate.surfaces.ollama.requests import model_of, parsed, refusals


@frozen
class Pull:
    """
    A request to pull a model.

    :ivar model: as the client said it.
    :ivar stream: whether it wants to see the progress.
    """

    model: str
    stream: bool

    def done(self, model: str, size: int) -> bytes:
        """
        The answer for a model that is there: lines of progress, or one object.

        :param model: the server's name for it.
        :param size: of its file, in bytes, 0 where it is not known.
        """
        if not self.stream:
            return dump({"status": "success"})
        layer = {"digest": f"sha256:{digest(model)}", "total": size, "completed": size}
        steps = [
            {"status": "pulling manifest"},
            {"status": f"pulling {digest(model)[:12]}", **layer},
            {"status": "verifying sha256 digest"},
            {"status": "writing manifest"},
            {"status": "success"},
        ]
        return b"".join(dump(step) + b"\n" for step in steps)

    def missing(self) -> OllamaError:
        """The error for a model that is not there."""
        why = "it can not be pulled: models are added where llama-server runs"
        return OllamaError(404, f"model '{self.model}' not found; {why}")


def pull(raw: bytes) -> Pull:
    """
    Read the body of a request to ``/api/pull``.

    :raises OllamaError: it is none.
    """
    with refusals():
        fields = parsed(raw)
        return Pull(model_of(fields, old_name=True), fields.flag("stream", True))
