"""
The demo's table, a line at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from slotgate.demo.player import Played

HEADING = (
    f"  {'session':<10} {'turn':>4}  {'cache':<9} {'prompt tokens':>13} {'tokens read':>12} "
    f"{'seconds':>8}"
)


def row(played: Played) -> str:
    """
    One turn's line.
    """
    return (
        f"  {played.session:<10} {played.turn:>4}  {played.cache:<9} {played.prompt_tokens:>13,} "
        f"{played.read_tokens:>12,} {played.seconds:>8.1f}"
    )


def total(name: str, turns: Sequence[Played]) -> str:
    """
    The sum of one pass's turns.
    """
    read = sum(played.read_tokens for played in turns)
    seconds = sum(played.seconds for played in turns)
    return f"  {name:<25} {read:>7,} tokens read {seconds:>8.1f} seconds"
