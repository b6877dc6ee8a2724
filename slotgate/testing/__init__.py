"""
Stand-ins and helpers for tests, slotgate's own and its users'.

- :class:`FakeLlamaServer`: a llama-server in this process, which can also misbehave
  (:mod:`slotgate.testing.faults`) and be slow on a clock (:class:`Speed`). Needs nothing more.
- :class:`FakeRouter`: the same in router mode, with many models (:class:`FakeModel`).
- :class:`RealServer`: the real one in a process of its own, and :func:`write_tiny_model`: models
  that it loads in no time. They need ``slotgate[test]``.

The names here are imported when they are first used: the fake's import brings Klein, and with it
the default reactor.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slotgate.testing.fake import FakeLlamaServer, Speed
    from slotgate.testing.fake_router import FakeModel, FakeRouter
    from slotgate.testing.models import write_tiny_model
    from slotgate.testing.real import RealServer, RealServerOptions, ServerDidNotStart

__all__ = [
    "FakeLlamaServer",
    "FakeModel",
    "FakeRouter",
    "RealServer",
    "RealServerOptions",
    "ServerDidNotStart",
    "Speed",
    "write_tiny_model",
]

_HOMES = {
    "FakeLlamaServer": "fake",
    "FakeModel": "fake_router",
    "FakeRouter": "fake_router",
    "RealServer": "real",
    "RealServerOptions": "real",
    "ServerDidNotStart": "real",
    "Speed": "fake",
    "write_tiny_model": "models",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
