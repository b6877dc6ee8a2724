"""
A page of metrics as a test sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families


@frozen
class Page:
    """The families of a page, by Prometheus' own parser."""

    families: Mapping[str, Metric]

    @classmethod
    def of(cls, text: str) -> Page:
        """A page in the text format."""
        return cls({one.name: one for one in text_string_to_metric_families(text)})

    def names(self) -> set[str]:
        """The names of the families as the page writes them, and of their series."""
        names = set()
        for family in self.families.values():
            names |= {sample.name for sample in family.samples}
            ending = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
            names |= {family.name + end for end in ending.get(family.type, [""])}
        return names

    def series(self) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        """What identifies each series."""
        return {
            (sample.name, frozenset(sample.labels.items()))
            for family in self.families.values()
            for sample in family.samples
        }

    def values(self, name: str, labels: Iterable[str]) -> dict[tuple[str, ...], float]:
        """The values that are not 0, added up by some labels."""
        values: dict[tuple[str, ...], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                if sample.name == name and sample.value:
                    key = tuple(sample.labels[label] for label in labels)
                    values[key] = values.get(key, 0) + sample.value
        return values

    def value(self, name: str, **labels: str) -> float:
        """The sum of the series with these labels."""
        found = [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        if not found:
            raise AssertionError(f"no {name} with {labels}")
        return sum(found)
