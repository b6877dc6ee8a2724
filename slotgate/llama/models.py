"""
The models of a router, as ``GET /models`` and the events of ``GET /models/sse`` tell them.

The shapes were read off b11434; the contract suite (``tests/contract_router.py``) holds them.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterable, Sequence

from attrs import frozen

from slotgate.llama.errors import Junk

#: ``--models-max`` where nobody has set it (b11434).
DEFAULT_MODELS_MAX = 4


class Status(enum.Enum):
    """Where a model is on its way into memory and out of it."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    #: Its process lives and has dropped the model, and with it its slots.
    SLEEPING = "sleeping"

    @property
    def running(self) -> bool:
        """Whether it takes one of the router's ``--models-max`` places."""
        return self is not Status.UNLOADED


@frozen
class Model:
    """One model of a router."""

    id: str
    aliases: tuple[str, ...] = ()
    status: Status = Status.UNLOADED
    #: The last load did not succeed.
    failed: bool = False
    #: How its last process ended, if it has.
    exit_code: int | None = None
    #: The command line of its process.
    args: tuple[str, ...] = ()

    @property
    def slot_save_path(self) -> str:
        """The folder of its slot files; empty: it saves none."""
        return self.option("--slot-save-path") or ""

    @property
    def parallel(self) -> int | None:
        """How many slots it has; ``None``: it decides that itself."""
        number = self._number("--parallel")
        return None if number is None or number < 1 else int(number)

    @property
    def sleep_seconds(self) -> float | None:
        """After how many idle seconds it falls asleep, and its slots are gone."""
        number = self._number("--sleep-idle-seconds")
        return None if number is None or number < 0 else number

    @property
    def process(self) -> str:
        """Tells one process of the model from the next: its port."""
        return self.option("--port") or ""

    def option(self, name: str) -> str | None:
        """The value of an option on its command line."""
        pairs = zip(self.args, self.args[1:], strict=False)
        return next((value for option, value in pairs if option == name), None)

    def _number(self, option: str) -> float | None:
        try:
            number = float(self.option(option) or "")
        except ValueError:
            return None
        return number if math.isfinite(number) else None


@frozen
class Change:
    """What an event says of a model."""

    model: str
    status: Status
    exit_code: int | None = None


@frozen
class RouterProps:
    """``GET /props`` of a router."""

    #: ``--models-max``; 0: no limit.
    models_max: int
    #: Whether a request for a model loads it.
    autoload: bool


def _status(value: object) -> Status:
    # words for what is not in memory yet ("downloading") come and go with the builds
    try:
        return Status(value)
    except ValueError:
        return Status.UNLOADED


def models_from(answer: object) -> tuple[Model, ...]:
    """
    :raises Junk: not the models of a router.
    """
    models = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(models, list):
        raise Junk("/models: no list of models")
    return tuple(_model(one) for one in models)


def _model(said: object) -> Model:
    status = said.get("status") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(status, dict):
        raise Junk("/models: a model without a status")
    name = said.get("id")
    if not isinstance(name, str) or not name:
        raise Junk("/models: a model without an id")
    code = status.get("exit_code")
    return Model(
        id=name,
        aliases=tuple(_texts(said.get("aliases"))),
        status=_status(status.get("value")),
        failed=status.get("failed") is True,
        exit_code=code if type(code) is int else None,
        args=tuple(_texts(status.get("args"))),
    )


def _texts(said: object) -> Sequence[str]:
    return [text for text in said if isinstance(text, str)] if isinstance(said, list) else []


def router_from(answer: object) -> RouterProps | None:
    """
    What ``GET /props`` says of a router; ``None``: it is of a server with one model.

    :raises Junk: not the properties of a llama-server.
    """
    if not isinstance(answer, dict):
        raise Junk(f"/props: expected an object, got {type(answer).__name__}")
    if answer.get("role") != "router":
        return None
    most = answer.get("max_instances")
    return RouterProps(
        models_max=most if type(most) is int and most >= 0 else DEFAULT_MODELS_MAX,
        autoload=answer.get("models_autoload") is not False,
    )


def change_from(data: bytes) -> Change | None:
    """What the data of one event says; ``None``: nothing about a model's status."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return None
    inner = event.get("data") if isinstance(event, dict) else None
    if not isinstance(inner, dict) or not isinstance(event.get("model"), str):
        return None
    if "status" not in inner:
        return None
    code = inner.get("exit_code")
    return Change(event["model"], _status(inner["status"]), code if type(code) is int else None)


def is_reload(data: bytes) -> bool:
    """Whether an event says that the router has other models than before (b11434)."""
    return b'"models_reload"' in data


class Lines:
    """The events in the bytes of a stream: ``data:`` lines, a blank one after each event."""

    #: An event longer than this is not one of a router's.
    most = 1024 * 1024

    def __init__(self) -> None:
        self._rest = b""

    def events(self, piece: bytes) -> Iterable[bytes]:
        """
        The data of the events that are complete with this piece.

        :raises Junk: an event has no end.
        """
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > self.most:
            raise Junk("/models/sse: an event without end")
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b":")
            # a router's events have one line of data each
            if name == b"data":
                yield value.removeprefix(b" ")
