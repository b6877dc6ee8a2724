"""Numbers of bytes as people read them."""

from __future__ import annotations

import pytest

from slotgate.units import gib, megabytes, size


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (46.1e6, "44.0 MiB"), (2**40, "1.0 TiB")],
)
def test_the_unit_that_leaves_the_fewest_digits(number: float, text: str) -> None:
    assert size(number) == text


def test_the_units_of_limits_and_of_files() -> None:
    assert gib(75 * 1024**3) == "75.0 GiB"
    assert [megabytes(number) for number in (36, 46.1e6)] == ["36 bytes", "46.1 MB"]
