"""What the dashboard looks like: the parts of the page, drawn without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dashboard_samples import (
    NASTY,
    NOW,
    Element,
    disk,
    drawn,
    listing,
    read_html,
    request,
    server,
    session,
    slot,
    span,
    status,
    totals,
)

from slotgate.dashboard import numbers
from slotgate.dashboard.activity import MOST_MARKS, MOST_STAYS, Window, lanes_of, switches
from slotgate.dashboard.asked import clear, delete, login, refused
from slotgate.dashboard.comparison import EARLIER, MOST, comparison
from slotgate.dashboard.forms import Notice
from slotgate.dashboard.keys import fields_of, key_of, query_of
from slotgate.dashboard.machines import servers, slots
from slotgate.dashboard.markup import middle_cut, to_html
from slotgate.dashboard.page import Frame
from slotgate.dashboard.requests import FOLDED, LISTED, requests
from slotgate.dashboard.saved import sessions
from slotgate.dashboard.sections import sections
from slotgate.dashboard.sessions import about_session, latest
from slotgate.dashboard.totals import disk as disk_section
from slotgate.dashboard.totals import totals as totals_section
from slotgate.dashboard.view import PAGE, View
from slotgate.sessions import SessionKey
from slotgate.web.rejected import Rejected

VIEW = View()


def badges(element: Element) -> list[str]:
    """The words that stand out."""
    return [one.text for one in element.all("span", "badge")]


def elements(element: Element) -> Iterator[Element]:
    """All elements in one."""
    for one in element.children:
        if isinstance(one, Element):
            yield one
            yield from elements(one)


def cells(element: Element) -> dict[str, Element]:
    """The cells of the first row of a table, by their headings."""
    row = next(next(element.all("tbody")).all("tr"))
    return {one.attributes.get("data-label") or "": one for one in row.all("td")}


@pytest.mark.parametrize(
    ("say", "value", "said"),
    [
        (numbers.count, 9999, "9,999"),
        (numbers.count, 12_345, "12.3 k"),
        (numbers.count, 123_456, "123 k"),
        (numbers.count, 1_234_567, "1.2 M"),
        (numbers.count, None, numbers.NONE),
        (numbers.size, 512, "512 B"),
        (numbers.size, 1536, "1.5 KiB"),
        (numbers.size, 5 * 1024**4, "5.0 TiB"),
        (numbers.duration, 0.0213, "21 ms"),
        (numbers.duration, 1.26, "1.3 s"),
        (numbers.duration, 75.0, "1 min 15 s"),
        (numbers.duration, 3 * 3600 + 300, "3 h 5 min"),
        (numbers.duration, 3 * 86400.0, "3.0 d"),
        (numbers.ago, 0.4, "now"),
        (numbers.ago, 59.9, "59 s ago"),
        (numbers.ago, 7200, "2 h ago"),
        (numbers.percent, 0.754, "75 %"),
    ],
)
def test_numbers_as_people_read_them(say: Any, value: Any, said: str) -> None:
    assert say(value) == said


def test_time_that_was_lost_is_not_called_saved() -> None:
    assert numbers.duration(-2.0) == "−2.0 s"  # noqa: RUF001


class TestEverything:
    """All parts at once."""

    def test_the_parts_have_names_of_their_own_and_headings(self) -> None:
        found = sections(status(), listing(session()), VIEW)
        for part in found:
            top = drawn(part.draw())
            (section,) = (one for one in top.children if isinstance(one, Element))
            assert section.attributes["id"] == part.name
            heading = section.attributes["aria-labelledby"]
            assert [one.attributes["id"] for one in section.all("h2")] == [heading]
        assert len({part.name for part in found}) == len(found) == 7

    def test_it_can_be_drawn_when_nothing_happened_and_nothing_answers(self) -> None:
        nothing = status(
            servers=[server(reachable=False, mode="unknown")],
            slots=[],
            requests=[],
            spans=[],
            totals=totals(
                hit_ratio=None, tokens_read=0, tokens_reused=0, hits=0, misses=0, seconds_saved=0.0
            ),
            disk=disk(bytes=None, files=None, limit_bytes=None, free_bytes=None, routes=[]),
        )
        text = "".join(drawn(part.draw()).text for part in sections(nothing, None, VIEW))
        assert "No request yet" in text
        assert "not reached" in text
        assert "index does not answer" in text

    @pytest.mark.parametrize("where", ["session", "client", "route", "model", "server"])
    def test_what_others_chose_is_text_and_nothing_else(self, where: str) -> None:
        told = status(
            slots=[slot(**{where: NASTY})],
            requests=[request(**{where: NASTY}, sentence=NASTY, finding=NASTY, prompt=NASTY)],
            spans=[span("save", 5, 4, "a") | {where: NASTY}] if where != "route" else [],
            servers=[
                server(
                    name=NASTY,
                    url=NASTY,
                    mode="router",
                    found=[{"text": NASTY, "warn": True}],
                    models=[
                        {
                            "id": NASTY,
                            "status": "loaded",
                            "failed": False,
                            "tokens_per_second": None,
                        }
                    ],
                )
            ],
        )
        row = session(id=NASTY, client=NASTY, route=NASTY)
        for part in sections(told, listing(row), VIEW):
            html = to_html(part.draw())
            assert "<script" not in html
            assert not set(html) & set("\x00\x1b\ufffe\u202e")
            top = read_html(html)
            for name in ("script", "b", "img"):
                assert not list(top.all(name))

    def test_no_part_has_a_style_or_a_script_of_its_own(self) -> None:
        for part in sections(status(), listing(session()), VIEW):
            top = drawn(part.draw())
            for name in {name for one in elements(top) for name in one.attributes}:
                assert name != "style"
                assert not name.startswith("on")
            assert not list(top.all("style"))

    def test_what_a_part_is_made_of_does_not_change_with_the_time(self) -> None:
        first, second = (
            sections(status(time=NOW + seconds, spans=[]), listing(session()), VIEW)
            for seconds in (0, 0.5)
        )
        assert [one.about for one in first] == [one.about for one in second]

    def test_the_time_line_moves_in_steps(self) -> None:
        windows = {Window.until(NOW + at / 10, 5) for at in range(1, 41)}
        assert len(windows) == 2
        assert all(window.end - window.begin == 300 for window in windows)
        assert all(window.end >= NOW for window in windows)


LONG = "m" * 200 + "e" * 56


def test_names_are_cut_in_the_middle_and_whole_for_the_pointer() -> None:
    cut = "m" * 20 + "…" + "e" * 19
    assert (len(cut), middle_cut(LONG), middle_cut("m" * 40)) == (40, cut, "m" * 40)
    told = status(
        slots=[slot(model=LONG, session=LONG, route=LONG)],
        requests=[request(session=LONG, model=LONG, route=LONG)],
        spans=[span("read", 5, 4, "a", model=LONG)],
        servers=[server(name=LONG, url=f"http://{LONG}")],
        disk=disk(routes=[disk()["routes"][0] | {"route": LONG, "server": LONG}]),
    )
    for part in sections(told, listing(session(id=LONG, route=LONG)), VIEW):
        if part.name == "totals":
            continue
        top = drawn(part.draw())
        names = [one for one in elements(top) if "…" in one.text and not one.children[1:]]
        assert [one for one in names if LONG in (one.attributes.get("title") or "")], part.name
        seen = [one.text for one in elements(top) if one.name not in ("title", "text")]
        assert not [text for text in seen if text == LONG], part.name


class TestTotals:
    """The numbers at the top."""

    def test_they_say_what_was_saved(self) -> None:
        text = drawn(totals_section(totals(), disk())).text
        for words in ("7,500", "75 %", "1 min 15 s", "4 restores", "3.0 GiB", "7 of 10 requests"):
            assert words in text

    def test_the_disk_stands_beside_its_limit(self) -> None:
        assert (
            "2.0 GiBof 10.0 GiB allowed, 50.0 GiB free"
            in drawn(totals_section(totals(), disk())).text
        )

    def test_a_server_that_did_not_answer_stands_out(self) -> None:
        assert badges(drawn(totals_section(totals(upstream_errors=2), disk()))) == ["look"]

    def test_a_route_near_its_limit_is_shown_as_full(self) -> None:
        used = disk()
        used["routes"][0]["files"] = 4
        bars = [one.classes for one in drawn(disk_section(used)).all("rect")]
        assert ["full"] in bars
        assert ["used"] not in bars


class TestServers:
    """Servers and models."""

    def test_what_somebody_should_put_right_comes_first_and_stands_out(self) -> None:
        found = [{"text": "it serves one model", "warn": False}, {"text": "-np", "warn": True}]
        items = list(drawn(servers([server(found=found)])).all("li", "finding"))
        assert [one.text for one in items] == ["look -np", "it serves one model"]

    def test_models_say_whether_they_are_loaded(self) -> None:
        models = [
            {"id": name, "status": state, "failed": failed, "tokens_per_second": speed}
            for name, state, failed, speed in (
                ("a", "unloaded", False, None),
                ("b", "loaded", False, 512.0),
                ("c", "sleeping", False, None),
                ("d", "unloaded", True, None),
            )
        ]
        section = drawn(servers([server(mode="router", models=models)]))
        items = [one.text for one in section.all("li")]
        assert items == ["b loaded reads 512 tokens/s", "c sleeping", "d failed", "a unloaded"]

    def test_of_many_models_those_that_do_nothing_are_folded_up(self) -> None:
        models = [
            {"id": f"m{at}", "status": "unloaded", "failed": False, "tokens_per_second": None}
            for at in range(30)
        ]
        models[7] |= {"status": "loaded"}
        models[9] |= {"failed": True}
        section = drawn(servers([server(mode="router", models=models)]))
        (folded,) = section.all("details")
        assert [one.text for one in folded.all("summary")] == ["28 unloaded models"]
        hidden = {one.text for one in folded.all("li")}
        shown = [one.text for one in section.all("li") if one.text not in hidden]
        assert (len(hidden), shown) == (28, ["m7 loaded", "m9 failed"])


class TestSlots:
    """Slots."""

    def test_a_slot_tells_its_state_its_session_and_its_queue(self) -> None:
        row = cells(drawn(slots([slot(waiting=3)], NOW, clients=False)))
        assert badges(row["State"]) == ["not saved", "3 waiting"]
        (link,) = row["Session in it"].all("a")
        assert link.attributes["href"] == "session?id=chat-1&route=%2A#difference"
        assert row["Tokens"].text == "1,000"
        assert row["Used"].text == "5 s ago"
        (clear,) = row[""].all("a")
        assert clear.attributes["href"] == "confirm?do=clear&server=local&model=&slot=0"

    def test_what_is_as_it_should_be_alarms_nobody(self) -> None:
        for part in (
            slots([slot(state="dirty")], NOW, clients=False),
            sessions(listing(session(resident=True, saved=False)), NOW, VIEW),
            requests([request(cache="cold", reason="new session")], NOW),
        ):
            (one,) = drawn(part).all("span", "badge")
            assert "dull" in one.classes, one.text
        (one,) = drawn(requests([request(cache="cold", reason="evicted")], NOW)).all(
            "span", "badge"
        )
        assert "warn" in one.classes

    def test_nothing_is_to_be_cleared_where_there_is_no_slot(self) -> None:
        row = cells(drawn(slots([slot(state="gone", session=None)], NOW, clients=False)))
        assert not list(row[""].all("a"))


class TestTimeLine:
    """The time line."""

    def test_each_step_tells_what_it_was(self) -> None:
        spans = [
            span("save", 20, 19, "a", tokens=500, bytes=3 * 1024**2),
            span("restore", 19, 18, "b", tokens=700, bytes=4 * 1024**2),
            span("read", 18, 10, "b", tokens=50),
            span("save", 10, 9, "b", failed=True),
        ]
        window = Window.until(NOW, 5)
        section = drawn(switches(spans, [slot()], window, VIEW))
        marks = list(section.all("rect", "mark"))
        assert [one.text for one in marks] == [
            "save, a, 500 tokens, 3.0 MiB, 1.0 s",
            "restore, b, 700 tokens, 4.0 MiB, 1.0 s",
            "read the prompt, b, 50 tokens, 8.0 s",
            "save failed, b, 1.0 s",
        ]
        assert [one.text for one in section.all("li")][-1] == "failed"

    def test_a_step_is_where_its_time_is(self) -> None:
        window = Window(NOW - 300, NOW)
        section = drawn(switches([span("read", 150, 75, "a")], [], window, VIEW))
        (mark,) = section.all("rect", "mark")
        assert (mark.attributes["x"], mark.attributes["width"]) == ("50.00%", "25.00%")

    def test_what_began_before_is_cut_at_the_edge_and_a_moment_can_be_seen(self) -> None:
        window = Window(NOW - 300, NOW)
        spans = [span("read", 400, 150, "a"), span("save", 100, 100, "a")]
        marks = list(drawn(switches(spans, [], window, VIEW)).all("rect", "mark"))
        assert (marks[0].attributes["x"], marks[0].attributes["width"]) == ("0.00%", "50.00%")
        assert marks[1].attributes["width"] == "0.10%"

    def test_what_is_too_near_to_be_told_apart_is_one(self) -> None:
        spans = [span("save", 50 - at, 49.9 - at, f"s{at}", bytes=1024) for at in (0, 0.3, 0.6, 9)]
        spans.insert(2, span("save", 49.6, 49.5, "s1", failed=True))
        (lane,) = lanes_of(spans, [], Window(NOW - 300, NOW))
        titles = [mark.title for mark in lane.marks]
        assert titles == [
            "3 times save, s0, s0.3, s0.6, 3.0 KiB, 0.3 s",
            "save failed, s1, 0.1 s",
            "save, s9, 1.0 KiB, 0.1 s",
        ]

    def test_there_is_an_end_to_what_is_drawn(self) -> None:
        spans = [
            span(kind, 299 - at * 0.29, 298.8 - at * 0.29, f"s{at}")
            for at in range(1000)
            for kind in ("save", "read")
        ]
        lane, _ = lanes_of(spans, [slot(), slot(slot=1)], Window(NOW - 300, NOW))
        assert len(lane.marks) == MOST_MARKS / 2
        assert len(lane.stays) == MOST_STAYS / 2
        # what is left out is the oldest
        assert "s996" in lane.marks[-1].title
        assert max(mark.ended - mark.began for mark in lane.marks) < 2

    def test_a_row_for_each_slot_also_without_anything(self) -> None:
        spans = [span("read", 9, 8, "a"), span("read", 7, 6, "b", slot=3, model="gone")]
        lanes = lanes_of(spans, [slot(), slot(slot=1)], Window.until(NOW, 5))
        assert [lane.name for lane in lanes] == [
            "local · slot 0",
            "local · slot 1",
            "local · gone · slot 3",
        ]

    def test_whose_cache_was_in_the_slot_until_the_next_one_came(self) -> None:
        spans = [
            span("read", 100, 90, "a"),
            span("save", 60, 59, "a"),
            span("restore", 59, 58, "b"),
            span("read", 58, 57, "b"),
            span("erase", 30, 29, "b"),
            span("read", 20, 19, "chat-1"),
        ]
        window = Window(NOW - 300, NOW)
        (lane,) = lanes_of(spans, [slot()], window)
        stays = [(stay.name, NOW - stay.began, NOW - stay.ended) for stay in lane.stays]
        # b was erased; nobody knows until when it was there but that it was while it was used
        assert stays == [("a", 100, 59), ("b", 59, 57), ("chat-1", 20, 0)]

    def test_a_quiet_slot_has_no_plot(self) -> None:
        section = drawn(switches([], [slot()], Window.until(NOW, 5), VIEW))
        assert "last 5 minutes" in section.text
        assert not list(section.all("svg"))

    def test_the_time_that_is_shown_can_be_chosen(self) -> None:
        section = drawn(switches([], [], Window.until(NOW, 5), View(minutes=5, offset=50)))
        links = {one.text: one.attributes for one in section.all("a")}
        assert links["10 min"]["href"] == "?minutes=10&offset=50"
        assert links["5 min"]["aria-current"] == "true"


class TestRequests:
    """The latest requests."""

    def test_a_request_tells_its_verdict_and_why(self) -> None:
        one = request(
            cache="cold",
            reason="evicted",
            finding="prompt differs at message 12",
            sentence="its snapshot was deleted",
            prompt="14 messages, the last prompt had 13: the first 11 are the same",
        )
        row = cells(drawn(requests([one], NOW)))
        assert badges(row["Cache"]) == ["cold (evicted)", "prompt differs at message 12"]
        (summary,) = row["Cache"].all("summary")
        assert summary.text == "Its snapshot was deleted."
        assert "the first 11 are the same." in row["Cache"].text

    def test_tokens_are_a_bar_of_two_parts(self) -> None:
        row = cells(drawn(requests([request()], NOW)))
        assert row["Tokens"].text == "900 reused, 100 read"
        widths = {one.classes[0]: one.attributes["width"] for one in row["Tokens"].all("rect")}
        assert widths == {"reused": "90.00%", "read": "10.00%"}

    def test_an_answer_without_counts_and_one_that_was_cut(self) -> None:
        one = request(read=None, reused=None, generated=None, end="cut", first_byte=None)
        section = drawn(requests([one], NOW))
        assert cells(section)["Tokens"].text == "not told"
        assert badges(cells(section)["Cache"])[-1] == "cut"
        assert not list(section.all("svg", "bars"))

    def test_the_latest_bar_stands_at_the_right(self) -> None:
        served = [request(time=NOW - at, read=10 * at, reused=0) for at in range(1, 4)]
        (plot,) = drawn(requests(served, NOW)).all("svg", "bars")
        titles = [one.text for one in plot.all("title")]
        assert [title.rpartition(", ")[2] for title in titles] == ["30 read", "20 read", "10 read"]
        last = list(plot.all("rect"))[-1]
        assert float((last.attributes["x"] or "").rstrip("%")) > 95

    def test_many_are_folded_up(self) -> None:
        served = [request(time=NOW - at) for at in range(100)]
        section = drawn(requests(served, NOW))
        first, folded = section.all("tbody")
        assert len(list(first.all("tr"))) == LISTED
        assert len(list(folded.all("tr"))) == FOLDED

    def test_the_parts_of_its_time(self) -> None:
        told = cells(drawn(requests([request()], NOW)))["Time"]
        assert [one.text for one in told.all("span")] == [
            "waited 0.3 s",
            "switch 0.2 s",
            "first byte 0.9 s",
        ]


class TestSessions:
    """The list of sessions."""

    def test_one_that_was_never_saved_is_there_and_can_be_saved(self) -> None:
        row = session(resident=True, saved=False, bytes=0, created=None, generation=None)
        section = drawn(sessions(listing(row), NOW, VIEW))
        assert badges(section) == ["in a slot, never saved"]
        (button,) = section.all("button")
        assert button.attributes["form"] == "save"
        assert button.attributes["value"] == "id=chat-1&route=%2A"

    def test_one_that_is_saved_as_it_is_can_only_be_deleted(self) -> None:
        section = drawn(sessions(listing(session(resident=True, saved=True)), NOW, VIEW))
        assert not list(section.all("button"))
        assert "Delete…" in [one.text for one in section.all("a")]

    def test_clients_are_named_only_where_there_are_some(self) -> None:
        without = drawn(sessions(listing(session()), NOW, VIEW))
        assert "Client" not in [one.text for one in without.all("th")]
        row = cells(drawn(sessions(listing(session(client="webui")), NOW, VIEW)))
        assert row["Client"].text == "webui"
        assert "client=webui" in (next(row["Session"].all("a")).attributes["href"] or "")

    def test_pages(self) -> None:
        listed = listing(session(), total=60, offset=PAGE)
        page = drawn(sessions(listed, NOW, View(offset=PAGE)))
        (nav,) = page.all("nav", "pages")
        assert "26 to 50 of 60 sessions" in nav.text
        assert [one.attributes["href"] for one in nav.all("a")] == [
            "?minutes=5&offset=0#sessions",
            "?minutes=5&offset=50#sessions",
        ]

    def test_a_page_that_is_not_there_is_the_last_one(self) -> None:
        listed = listing(session(), total=60, offset=50)
        (nav,) = drawn(sessions(listed, NOW, View(offset=5000))).all("nav", "pages")
        assert "51 to 60 of 60 sessions" in nav.text
        assert [one.attributes["href"] for one in nav.all("a")] == ["?minutes=5&offset=25#sessions"]


class TestPrompts:
    """Two prompts side by side."""

    def told(self, *rows: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "sentence": "3 messages, the last prompt had 3",
            "change": "middle",
            "tokens": {"prompt": 1000, "could_reuse": 600, "reused": 500, "read": 500},
            "cache": "restored",
            "verdict": "its snapshot was restored",
            "messages": list(rows),
            **more,
        }

    def row(self, number: int, status: str, **more: Any) -> dict[str, Any]:
        return {
            "number": number,
            "old_number": number,
            "role": "user",
            "status": status,
            "read_again": status != "same",
            "characters": 100,
            "same_characters": 100 if status == "same" else 20,
            **more,
        }

    def test_it_begins_just_before_the_first_difference(self) -> None:
        rows = [self.row(at, "same") for at in range(1, 6)]
        rows += [self.row(6, "changed"), self.row(7, "same", read_again=True)]
        top = drawn(comparison(self.told(*rows)))
        (folded,) = top.all("details")
        assert [one.text for one in folded.all("summary")] == [
            "4 earlier messages that are the same"
        ]
        first = next(one for one in top.all("li") if one.attributes.get("id") == "difference")
        assert next(first.all("span", "which")).text == "6 user"
        assert "the first difference" in first.text
        # the one before it, itself, and the one after it
        shown = [one for one in top.all("li") if one not in list(folded.all("li"))]
        messages = [one for one in shown if "message" in one.classes]
        assert [next(one.all("span", "which")).text for one in messages] == [
            "5 user",
            "6 user",
            "7 user",
        ]
        assert "read again" in badges(messages[2])

    def test_without_texts_it_tells_lengths_and_how_to_keep_them(self) -> None:
        top = drawn(comparison(self.told(self.row(1, "changed"))))
        assert "the first 20 of 100 characters are the same" in top.text
        assert "keep_prompts" in top.text
        assert not list(top.all("pre"))

    def test_texts_are_shown_from_just_before_where_they_differ(self) -> None:
        old, new = "a" * 1000 + "old end", "a" * 1000 + "<b>new</b>\x00 end"
        row = self.row(1, "changed", text=new, old_text=old, same_characters=1000)
        top = drawn(comparison(self.told(row)))
        assert [one.text for one in top.all("mark")] == ["old end", "<b>new</b>\\x00 end"]
        assert "… 600 characters …" in top.text
        assert "keep_prompts" not in top.text

    def test_tokens_that_could_be_reused_stand_beside_those_that_were(self) -> None:
        text = drawn(comparison(self.told(self.row(1, "changed")))).text
        assert "about 600 (60 %)" in text
        assert "500 (50 %)" in text

    def test_a_first_prompt_and_none_at_all(self) -> None:
        first = self.told(self.row(1, "added", old_number=None), change=None)
        first["tokens"] = {"prompt": None, "could_reuse": None, "reused": None, "read": None}
        assert not list(drawn(comparison(first)).all("div", "pair-head"))
        assert "prompt_history" in drawn(comparison(None)).text
        assert "8 million characters" in drawn(comparison(None)).text

    def test_of_a_long_prompt_a_part_is_drawn_and_the_rest_is_told(self) -> None:
        text = "word " * 400
        rows = [self.row(at, "same", text=text) for at in range(1, 3001)]
        rows += [self.row(3001, "changed", text=text + "a", old_text=text + "b")]
        rows += [self.row(at, "same", text=text, read_again=True) for at in range(3002, 3901)]
        html = to_html(comparison(self.told(*rows)))
        assert len(html) < 700_000
        top = read_html(html)
        (folded,) = top.all("details")
        assert next(folded.all("summary")).text == "2,999 earlier messages that are the same"
        before = [next(one.all("span", "which")).text for one in folded.all("li", "message")]
        assert (len(before), before[-1]) == (EARLIER, "2999 user")
        messages = list(top.all("li", "message"))[EARLIER:]
        names = [next(one.all("span", "which")).text for one in messages]
        assert (len(names), names[:2]) == (MOST, ["3000 user", "3001 user"])
        told = [one.text for one in top.all("p", "left-out")]
        assert [one.partition(" left out here")[0] for one in told] == [
            "2,949 messages before these",
            "801 more messages after these",
        ]
        assert all("GET /api/sessions/" in one for one in told)

    def test_long_texts_are_cut_and_of_many_only_the_beginning_is_drawn(self) -> None:
        text = "word " * 100_000
        rows = [self.row(at, "added", text=text) for at in range(1, 101)]
        html = to_html(comparison(self.told(*rows, change="added")))
        assert len(html) < 700_000
        first, *_, last = (one.text for one in read_html(html).all("pre"))
        assert first.endswith("… 480 k more characters")
        assert last.endswith("… 499 k more characters")

    def test_everything_is_the_same(self) -> None:
        rows = [self.row(at, "same") for at in range(1, 4)]
        top = drawn(comparison(self.told(*rows, change="same")))
        assert not [one for one in top.all("li") if one.attributes.get("id") == "difference"]


class TestOtherPages:
    """Pages that ask, and the frame."""

    KEY = SessionKey("webui", "*", NASTY)

    @pytest.mark.parametrize(
        "content",
        [
            login("t", NASTY),
            delete(KEY, session(), "t"),
            delete(KEY, None, "t"),
            clear(slot(session=NASTY), "t"),
            refused(NASTY),
            about_session(KEY, session(), NOW),
            about_session(KEY, None, NOW),
            latest(SessionKey(None, "*", "chat-1"), status()),
        ],
    )
    def test_they_are_whole_pages_and_safe(self, content: Any) -> None:
        html = Frame(NASTY, content, Notice(NASTY), logout_token="t").html().decode()
        assert html.startswith('<!DOCTYPE html>\n<html lang="en">')
        top = read_html(html.partition("\n")[2])
        assert not list(top.all("script"))
        for form in top.all("form"):
            assert form.attributes["method"] == "post"
            tokens = [
                one.attributes["value"]
                for one in form.all("input")
                if one.attributes.get("name") == "token"
            ]
            assert tokens == ["t"]

    def test_clearing_what_is_not_saved_says_so(self) -> None:
        assert "not saved" in drawn(clear(slot(), "t")).text
        assert "not saved" not in drawn(clear(slot(state="saved"), "t")).text


@pytest.mark.parametrize("id_", [NASTY, "a&b=c;d+e f", "ü/../%2e", "日本"])
@pytest.mark.parametrize("client", [None, "", "web ui"])
def test_a_session_survives_its_address(id_: str, client: str | None) -> None:
    key = SessionKey(client, "*", id_)
    query = query_of(key, do="delete")
    assert query.isascii()
    assert query.isprintable()
    assert key_of(fields_of(query)) == key


@pytest.mark.parametrize(
    "query", ["", "id=a", "route=a", "id=&route=a", "id=a&id=b&route=c", "id=%ff&route=a", "&" * 99]
)
def test_addresses_that_name_no_session(query: str) -> None:
    with pytest.raises(Rejected) as caught:
        key_of(fields_of(query))
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("fields", "view"),
    [
        ({}, View(5, 0)),
        ({"minutes": "10", "offset": "50"}, View(10, 50)),
        ({"minutes": "7", "offset": "-1"}, View(5, 0)),
        ({"minutes": "x", "offset": "51"}, View(5, 50)),
        ({"offset": "9" * 50}, View(5, 0)),
        ({"offset": "٣"}, View(5, 0)),
    ],
)
def test_views(fields: dict[str, str], view: View) -> None:
    assert View.of(fields) == view
