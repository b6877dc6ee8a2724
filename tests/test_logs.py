"""How a log event becomes a line, for people and for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    Logger,
    LogLevel,
    LogPublisher,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from slotgate.config import Logging
from slotgate.logs import as_json, as_text, levels
from slotgate.logs.events import LONGEST_FIELD, LONGEST_MESSAGE, LONGEST_TRACEBACK, MOST_FIELDS


@implementer(ILogObserver)
class Seen:
    """An observer that keeps what it sees."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def __call__(self, event: LogEvent) -> None:
        self.events.append(event)


class Nasty:
    """An object that can not be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


class Unspeakable(Exception):
    """A failure that can not be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def events(log: Any, *, namespace: str = "slotgate.slots") -> list[dict[str, Any]]:
    """What a logger publishes while ``log`` uses it."""
    seen = Seen()
    log(Logger(namespace=namespace, observer=LogPublisher(seen)))
    return seen.events


def event(message: str = "hello", **fields: Any) -> dict[str, Any]:
    """One event of level info."""
    (one,) = events(lambda log: log.info(message, **fields))
    return {**one, "log_time": 1_800_000_000.0625}


def read(line: str) -> dict[str, Any]:
    """A line as another program reads it: strictly."""
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert line.isascii()
    assert "\x1e" not in line

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    value: dict[str, Any] = json.loads(line, parse_constant=refuse)
    # half a surrogate pair is refused here
    json.dumps(value, ensure_ascii=False).encode()
    return value


def failed(error: Exception) -> Failure:
    try:
        secret_local = "value-of-a-variable"  # noqa: F841
        raise error
    except Exception:
        return Failure(captureVars=True)


class TestJson:
    """One object a line."""

    def test_it_says_when_who_how_bad_and_what(self) -> None:
        line = read(as_json(event("{slot}: {n} tokens", slot="local 0", n=3)))
        assert line == {
            "time": "2027-01-15T08:00:00.062Z",
            "level": "info",
            "namespace": "slotgate.slots",
            "message": "local 0: 3 tokens",
            "slot": "local 0",
            "n": 3,
        }

    def test_plain_values_are_fields_and_nothing_else_is(self) -> None:
        plain = {"a": "x", "b": 1, "c": 1.5, "d": True, "e": None, "f": b"raw\xff"}
        line = read(as_json(event("m", **plain, g=object(), h=[1], i={"k": 1}, j=Nasty())))
        del line["time"], line["level"], line["namespace"], line["message"]
        assert line == {**plain, "f": "raw\\xff"}

    def test_a_field_does_not_take_the_place_of_ours(self) -> None:
        line = read(as_json({**event("said", n=1), "message": "forged", "time": 5, "level": "x"}))
        assert (line["message"], line["level"], line["n"]) == ("said", "info", 1)
        assert line["time"].startswith("2027-")

    def test_what_twisted_adds_is_left_out(self) -> None:
        line = read(as_json(event("m")))
        assert set(line) == {"time", "level", "namespace", "message"}

    def test_numbers_that_json_does_not_have(self) -> None:
        line = read(as_json(event("m", a=float("nan"), b=float("-inf"), c=10**5000, d=2**63 - 1)))
        assert [line[name] for name in "abcd"] == ["nan", "-inf", "a huge number", 2**63 - 1]

    def test_long_texts_are_cut(self) -> None:
        line = read(as_json(event("{a}", a="x" * 100_000, b=b"y" * 100_000)))
        assert line["a"] == "x" * LONGEST_FIELD + "…"
        assert len(line["message"]) == LONGEST_MESSAGE + 1
        assert line["b"] == "y" * LONGEST_FIELD

    def test_many_fields_are_cut(self) -> None:
        line = read(as_json(event("m", **{f"f{number}": 0 for number in range(1000)})))
        assert len(line) == 4 + MOST_FIELDS

    def test_a_failure_has_its_traceback_and_no_variables(self) -> None:
        (one,) = events(lambda log: log.failure("it broke", failed(ValueError("why"))))
        line = read(as_json(one))
        assert (line["level"], line["message"]) == ("critical", "it broke")
        assert "ValueError: why" in line["traceback"]
        assert "value-of-a-variable" not in json.dumps({**line, "traceback": ""})
        assert "secret_local" not in line["traceback"].replace('secret_local = "', "")

    def test_a_failure_that_can_not_be_shown(self) -> None:
        (one,) = events(lambda log: log.failure("it broke", failed(Unspeakable())))
        assert read(as_json(one))["traceback"]

    def test_of_a_long_traceback_the_end_is_kept(self) -> None:
        (one,) = events(lambda log: log.failure("m", failed(ValueError("x" * 100_000 + "END"))))
        traceback = read(as_json(one))["traceback"]
        assert len(traceback) <= LONGEST_TRACEBACK + 1
        assert traceback.rstrip().endswith("END")

    @pytest.mark.parametrize("message", ["{missing}", "{a.b}", "{a:d}", "{", "{nasty}"])
    def test_a_message_that_can_not_be_formatted_shows_no_field(self, message: str) -> None:
        line = as_json(event(message, a="the-secret", nasty=Nasty()))
        assert read(line)["a"] == "the-secret"
        assert "the-secret" not in read(line)["message"]
        assert "the-secret" not in (as_text(event(message, a="the-secret", nasty=Nasty())) or "")

    @given(
        st.dictionaries(
            st.text(max_size=20) | st.sampled_from(["time", "message", "log_time", "log_level"]),
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(st.characters(categories=None))
            | st.binary()
            | st.lists(st.integers(), max_size=3)
            | st.builds(Nasty),
            max_size=8,
        ),
        st.text(st.characters(categories=None)),
    )
    def test_whatever_an_event_holds(self, fields: dict[str, Any], message: str) -> None:
        one = {**event("{said}", said=message), **fields}
        read(as_json(one))
        text = as_text(one)
        assert text is None or text.removesuffix("\n").replace("\n\t", "").isprintable()


class TestText:
    """A line for people."""

    def test_it_looks_as_twistds_own(self) -> None:
        line = as_text(event("hello"))
        assert line is not None
        time, rest = line.split(" ", 1)
        assert rest == "[slotgate.slots#info] hello\n"
        assert time.startswith("2027-01-1")

    def test_without_the_time_for_syslog(self) -> None:
        assert as_text(event("hello"), with_time=False) == "[slotgate.slots#info] hello\n"

    def test_a_client_can_not_write_lines_of_its_own_nor_to_the_terminal(self) -> None:
        said = "a\n2027-01-15T08:00:00+0000 [slotgate#info] forged\r\x1b[2J\x9b1m\u202e\u2028\ud800"
        line = as_text(event("{said}", said=said), with_time=False)
        assert line == (
            "[slotgate.slots#info] a\\n2027-01-15T08:00:00+0000 [slotgate#info] forged"
            "\\r\\x1b[2J\\x9b1m\\u202e\\u2028\\ud800\n"
        )

    def test_readable_text_of_any_language_stays(self) -> None:
        assert "Grüße, 世界 🦙" in (as_text(event("Grüße, 世界 🦙")) or "")

    def test_a_traceback_follows_each_line_after_a_tab(self) -> None:
        forged = ValueError("why\n2027-01-15T08:00:00+0000 [slotgate#info] forged\x1b[2J")
        (one,) = events(lambda log: log.failure("it broke", failed(forged)))
        first, *others = (as_text(one) or "").splitlines()
        assert first.endswith("[slotgate.slots#critical] it broke")
        assert others
        assert all(line.startswith("\t") and line[1:].isprintable() for line in others)
        assert "ValueError: why" in "".join(others)

    def test_an_event_without_a_message_is_no_line(self) -> None:
        assert as_text(event("")) is None


class TestLevels:
    """Which events are written."""

    def written(self, logging: Logging) -> list[str]:
        seen = Seen()
        observer = FilteringLogObserver(seen, [levels(logging)])
        for namespace in ("slotgate.slots", "slotgate.slots.switch", "slotgate.slotsmith", "other"):
            log = Logger(namespace=namespace, observer=observer)
            for level in LogLevel.iterconstants():
                log.emit(level, "m")
        return [f"{one['log_namespace']}#{one['log_level'].name}" for one in seen.events]

    def test_a_level_and_all_above_it(self) -> None:
        above = {one.split("#")[1] for one in self.written(Logging(level="warn"))}
        assert above == {"warn", "error", "critical"}

    def test_a_namespaces_level_holds_below_it_and_not_beside_it(self) -> None:
        seen = self.written(Logging(level="critical", levels={"slotgate.slots": "debug"}))
        debugged = {one.split("#")[0] for one in seen if one.endswith("#debug")}
        assert debugged == {"slotgate.slots", "slotgate.slots.switch"}

    def test_the_longest_namespace_wins(self) -> None:
        own = {"slotgate": "critical", "slotgate.slots.switch": "info"}
        seen = self.written(Logging(level="debug", levels=own))
        assert "slotgate.slots.switch#info" in seen
        assert "slotgate.slots#error" not in seen
        assert "other#debug" in seen
