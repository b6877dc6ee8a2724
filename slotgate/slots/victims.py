"""
Which model makes room for another one. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

from slotgate.llama.models import Model, Status


def has_room(
    running: Collection[str], arriving: Collection[str], leaving: Collection[str], limit: int
) -> bool:
    """
    Whether one more model may be loaded.

    :param running: the models that take a place now.
    :param arriving: those for which a place is kept or being made.
    :param leaving: those whose place is promised to one that arrives.
    :param limit: ``--models-max``; 0: none.
    """
    taken = (set(running) - set(leaving)) | set(arriving)
    return not limit or len(taken) < limit


def candidates(
    running: Sequence[Model],
    in_use: Container[str],
    arriving: Container[str],
    leaving: Container[str],
) -> list[Model]:
    """
    The models that may make room, the one used longest ago first. ``/slots`` may still show that
    somebody else uses one of them.

    :param running: the models that take a place, the one used longest ago first.
    :param in_use: those with a request of ours.
    """
    return [
        model
        for model in running
        if model.status is not Status.LOADING
        and model.id not in in_use
        and model.id not in arriving
        and model.id not in leaving
    ]
