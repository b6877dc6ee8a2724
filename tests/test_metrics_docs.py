"""The dashboard for Grafana and the page about the metrics are about the metrics there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from scraping import Page
from test_metrics import NOW, full, text
from twisted.trial.unittest import SynchronousTestCase

DOCS = Path(__file__).parent.parent / "docs"

_NAME = re.compile(r"\bslotgate_[a-z_]+")


def scraped() -> Page:
    """A page with every metric there is."""
    return Page.of(text(full(), NOW))


def labels_of(page: Page) -> dict[str, set[str]]:
    """The labels of each series' name."""
    labels: dict[str, set[str]] = {}
    for name, values in page.series():
        labels.setdefault(name, set()).update(dict(values))
    return labels


class DashboardTests(SynchronousTestCase):
    """``docs/grafana.json``."""

    def setUp(self) -> None:
        self.dashboard: dict[str, Any] = json.loads((DOCS / "grafana.json").read_text())
        self.panels: list[dict[str, Any]] = self.dashboard["panels"]
        self.targets = [target for panel in self.panels for target in panel["targets"]]

    def test_what_grafana_wants_to_import_it(self) -> None:
        self.assertRegex(self.dashboard["uid"], r"^[A-Za-z0-9_-]{1,40}$")
        self.assertGreaterEqual(self.dashboard["schemaVersion"], 39)
        self.assertTrue(self.dashboard["title"])
        # an id is of one database: with one, an import is refused or overwrites another dashboard
        self.assertNotIn("id", self.dashboard)

    def test_the_data_source_is_chosen_by_a_variable(self) -> None:
        variables = {one["name"]: one for one in self.dashboard["templating"]["list"]}
        self.assertEqual(variables["datasource"]["type"], "datasource")
        self.assertEqual(variables["datasource"]["query"], "prometheus")
        chosen = {"type": "prometheus", "uid": "${datasource}"}
        for one in (*self.panels, *self.targets, variables["server"]):
            self.assertEqual(one["datasource"], chosen)

    def test_panels_have_ids_of_their_own_and_do_not_overlap(self) -> None:
        ids = [panel["id"] for panel in self.panels]
        self.assertEqual(sorted(ids), sorted(set(ids)))
        taken: dict[tuple[int, int], str] = {}
        for panel in self.panels:
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
            for x in range(at["x"], at["x"] + at["w"]):
                for y in range(at["y"], at["y"] + at["h"]):
                    self.assertNotIn((x, y), taken, panel["title"])
                    taken[x, y] = panel["title"]

    def test_queries_are_told_apart(self) -> None:
        for panel in self.panels:
            self.assertTrue(panel["title"])
            self.assertTrue(panel["description"].endswith("."), panel["title"])
            refs = [target["refId"] for target in panel["targets"]]
            self.assertEqual(sorted(refs), sorted(set(refs)))

    def test_every_metric_and_label_exists(self) -> None:
        page = scraped()
        labels = labels_of(page)
        for target in self.targets:
            expr = target["expr"]
            names = _NAME.findall(expr)
            self.assertTrue(names, expr)
            for name in names:
                self.assertIn(name, page.names(), expr)
            there = set().union(*(labels[name] for name in names))
            used = set(re.findall(r'([a-z]+)(?:=~|=|!=)"', expr))
            for grouped in re.findall(r"by \(([a-z, ]+)\)", expr):
                used |= set(grouped.split(", "))
            used |= set(re.findall(r"{{([a-z]+)}}", target["legendFormat"]))
            self.assertLessEqual(used, there, expr)

    def test_counters_are_rates_and_gauges_are_not(self) -> None:
        page = scraped()
        types = {name: family.type for name, family in page.families.items()}
        for target in self.targets:
            expr = target["expr"]
            self.assertEqual(expr.count("("), expr.count(")"), expr)
            for name in _NAME.findall(expr):
                rated = re.search(
                    rf"(rate|increase)\({name}{{[^}}]*}}\[\$__(rate_interval|range)\]", expr
                )
                self.assertEqual(bool(rated), types.get(name) != "gauge", expr)
            if "histogram_quantile" in expr:
                self.assertRegex(expr, r"by \(le\b")

    def test_every_metric_is_shown(self) -> None:
        shown = {name for target in self.targets for name in _NAME.findall(target["expr"])}
        shown = {name.removesuffix("_bucket") for name in shown}
        left_out = {"slotgate_request_duration_seconds"}
        families = {
            f"{name}_total" if family.type == "counter" else name
            for name, family in scraped().families.items()
        }
        self.assertEqual(families - shown, left_out)


class PageTests(SynchronousTestCase):
    """``docs/metrics.md``."""

    def rows(self) -> dict[str, list[str]]:
        """The cells of each row about a metric, by its name."""
        rows: dict[str, list[str]] = {}
        for line in (DOCS / "metrics.md").read_text().splitlines():
            if line.startswith("| `slotgate_"):
                name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
                self.assertNotIn(name, rows)
                rows[name.strip("`")] = cells
        return rows

    def test_each_metric_has_its_row_with_type_and_labels(self) -> None:
        page, rows = scraped(), self.rows()
        labels = labels_of(page)
        for name, family in page.families.items():
            written = f"{name}_total" if family.type == "counter" else name
            kind, said, *_ = rows.pop(written)
            self.assertEqual(kind, family.type, written)
            there = labels[f"{name}_sum" if family.type == "histogram" else written]
            self.assertEqual(set(re.findall(r"`(\w+)`", said)), there, written)
        self.assertEqual(rows, {})

    def test_no_other_metric_is_named(self) -> None:
        named = set(_NAME.findall((DOCS / "metrics.md").read_text()))
        self.assertLessEqual(named, scraped().names() | set(scraped().families))
