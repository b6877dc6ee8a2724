"""
Which events are written.
"""

from __future__ import annotations

from twisted.logger import LogLevel, LogLevelFilterPredicate

from slotgate.config import Logging


def levels(logging: Logging) -> LogLevelFilterPredicate:
    """
    The filter of ``[logging]``: a namespace's level holds for all below it that has none of its
    own.
    """
    predicate = LogLevelFilterPredicate(LogLevel.levelWithName(logging.level))
    for namespace, name in logging.levels.items():
        predicate.setLogLevelForNamespace(namespace, LogLevel.levelWithName(name))
    return predicate
