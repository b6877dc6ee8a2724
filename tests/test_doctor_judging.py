"""What facts about a server mean: the sentence, the level and the line to change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from slotgate.config import Client, Config, Gateway, Identity, Route, Router, Server
from slotgate.doctor.facts import (
    Contact,
    Folder,
    Header,
    Measured,
    Measurement,
    Model,
    Probe,
    Saving,
    ServerFacts,
    Slots,
)
from slotgate.doctor.findings import Finding, advice, exit_status, ok, problem
from slotgate.doctor.options import Options
from slotgate.doctor.report import Report, as_json, judge, lines_of, safe, secrets_of, verdict
from slotgate.llama.models import RouterProps, Status
from slotgate.llama.wire import SlotStatus

GIB = 1024**3
SLOTS = Path("/srv/slots")
FOLDER = Folder(SLOTS, True, True, 50 * GIB, 500e6, 900e6)
DENSE, SLIDING = Header("llama", 0, False), Header("gemma3", 512, False)
HYBRID = Header("qwen3next", 0, True)


def options(text: str) -> Options:
    return Options(tuple(f"--slot-save-path /srv/slots/ {text}".split()))


def status(slot: int = 0, busy: bool = False, task: int | None = 5) -> SlotStatus:
    return SlotStatus(slot, busy, task, 100, 4096)


def model(**fields: Any) -> Model:
    probe = Probe(0, "slotgate-doctor-0123456789abcdef.probe", 0, 36, 36)
    return evolve(
        Model(
            id="",
            status=Status.LOADED,
            path="/models/m.gguf",
            total_slots=1,
            options=options("-np 1 --cache-ram 0"),
            slots=Slots((status(),), (status(),)),
            header=DENSE,
            saving=Saving(True, probe),
        ),
        **fields,
    )


def facts(one: Model | None = None, **fields: Any) -> ServerFacts:
    server = Server("local", "http://127.0.0.1:8080", slot_save_path=SLOTS)
    values: dict[str, Any] = {
        "server": server,
        "routes": (Route("*", "local"),),
        "contact": Contact.ANSWERS,
        "build": "b11549-1a2b3c4",
        "models": (one or model(),),
        "folder": FOLDER,
        "local": True,
        "memory_available": 10 * GIB,
    }
    return ServerFacts(**{**values, **fields})


def probed(**fields: Any) -> Model:
    saving = model().saving
    assert saving.probe is not None
    return model(saving=Saving(True, evolve(saving.probe, **fields)))


def router(*models: Model, **fields: Any) -> ServerFacts:
    found = tuple(evolve(one, id=f"m{number}") for number, one in enumerate(models))
    return facts(**{"router": RouterProps(2, True), "models": found, **fields})


def lost(said: str, url: str = "http://127.0.0.1:8080") -> ServerFacts:
    return facts(contact=Contact.UNREACHABLE, said=said, server=Server("local", url))


def test_what_is_right_is_all_ok() -> None:
    report = judge(facts())
    assert exit_status(report.findings) == 0, lines_of(report)
    assert {f.check for f in report.findings} == {
        *("reach", "build", "slots", "parallel", "traffic", "save", "folder", "disk", "window"),
        "memory",
    }


UNSAID = model(options=None)

CASES: dict[str, tuple[ServerFacts | Model, str, str, str]] = {
    # facts, level, part of the sentence, part of the change
    "refused": (lost("x: connection refused"), "problem", "refused", "start llama-server"),
    "tls": (
        lost("x: TLS failed, certificate verify failed", "https://h"),
        "problem",
        "verify failed",
        'ca_file = "FILE.pem"',
    ),
    "no tls": (
        lost("x: TLS failed, wrong version number", "https://h"),
        "problem",
        "wrong version",
        'url = "http://…"',
    ),
    "other name": (
        lost("x: its certificate is for another name", "https://h"),
        "problem",
        "another name",
        'url = "https://NAME"',
    ),
    "hangs": (lost("no answer within 10 s"), "problem", "127.0.0.1:8080: no answer", "restart"),
    "foreign": (
        facts(contact=Contact.FOREIGN, said="404"),
        "problem",
        "not as llama-server does (404)",
        "[servers.local] url =",
    ),
    "ourselves": (
        facts(contact=Contact.SLOTGATE, said="s"),
        "problem",
        "not llama-server's",
        "url",
    ),
    "no key": (facts(contact=Contact.KEY_REFUSED), "problem", "wants a key", "api_key_file"),
    "loading": (facts(contact=Contact.LOADING), "problem", "still loading", "ask again"),
    "old": (facts(build="b9000-aa"), "advice", "is older than what", "newer llama-server"),
    "no build": (facts(build="b0-unknown"), "ok", "does not say its build", ""),
    "blind": (model(slots=None, hidden="501 no"), "advice", "slots are not shown", "--slots"),
    "look failed": (model(slots=None, hidden="x"), "problem", "a look at the slots failed: x", ""),
    "auto": (
        model(options=options(""), total_slots=4),
        "advice",
        "-np is not set, so there are 4 slots",
        "-np 1",
    ),
    "auto, unsaid": (
        evolve(UNSAID, total_slots=4),
        "advice",
        "as many as without -np. If",
        "-np 1",
    ),
    "shared": (
        model(options=options("-np 4 --kv-unified"), total_slots=4),
        "advice",
        "4 slots and --kv-unified",
        "--no-kv-unified",
    ),
    "missing slot": (
        facts(routes=(Route("*", "local", slots=(3,)),)),
        "problem",
        "a route uses slot 3, and the slots are 0 to 0",
        "[[routes]] slot = 0, or llama-server … -np 4",
    ),
    "others": (
        model(slots=Slots((status(),), (status(task=6),))),
        "advice",
        "no slotgate with this configuration runs",
        "come through slotgate",
    ),
    "ours": (
        facts(model(slots=Slots((status(busy=True),), (status(),))), slotgate_runs=True),
        "ok",
        "slot 0 is in use, by the slotgate that runs",
        "",
    ),
    "saves nothing": (
        model(saving=Saving(False)),
        "problem",
        "it saves no slots",
        "--slot-save-path /srv/slots",
    ),
    "save fails": (
        model(saving=Saving(True, None, "500 Unable", True)),
        "problem",
        "a save failed: 500 Unable",
        "its disk has room",
    ),
    "not tried": (
        model(saving=Saving(True, None, "every slot is busy")),
        "advice",
        "no save was tried: every slot is busy",
        "ask again",
    ),
    "no folder": (facts(folder=None), "advice", "never checked", 'slot_save_path = "/srv/slots"'),
    "folder away": (
        facts(folder=Folder(SLOTS, False)),
        "problem",
        "no such folder",
        "mkdir -p /srv/slots",
    ),
    "read only": (
        facts(folder=Folder(SLOTS, True, False, 9 * GIB)),
        "problem",
        "can not be written by us",
        "as the user of llama-server",
    ),
    "wrong folder": (
        probed(seen=None),
        "problem",
        "not in /srv/slots; the file slotgate-doctor-0123456789abcdef.probe (36 bytes) stays",
        "slot_save_path =",
    ),
    "found elsewhere": (
        probed(seen=None, elsewhere="/other"),
        "problem",
        "it was in /other",
        "slot_save_path =",
    ),
    "another size": (probed(seen=7), "problem", "wrote 36 bytes, and the file", ""),
    "not ours": (
        probed(kept="Permission denied"),
        "problem",
        "can not be deleted by us (Permission denied)",
        "as the user of llama-server",
    ),
    "full": (
        facts(folder=evolve(FOLDER, free_bytes=GIB // 2)),
        "problem",
        "0.5 GiB of the disk are free, and min_free_gib is 1: nothing is saved",
        "make room",
    ),
    "tight": (facts(folder=evolve(FOLDER, free_bytes=2 * GIB)), "advice", "little room", "make"),
    "slow": (facts(folder=evolve(FOLDER, write_speed=10e6)), "advice", "slow: written at 10", "fa"),
    "no quota": (
        facts(folder=evolve(FOLDER, write_speed=0.0, trouble="Disk quota exceeded")),
        "problem",
        "could not be written: Disk quota exceeded",
        "",
    ),
    "window": (
        facts(model(header=SLIDING), build="b11434-a"),
        "advice",
        "(gemma3) has a sliding window of 512 tokens, and b11434-a may be too old",
        "llama-server of 2026-10-08 or later (b11549 is one), or llama-server … --swa-full",
    ),
    "window, new": (model(header=SLIDING), "ok", "b11549-1a2b3c4 saves checkpoints", ""),
    "window, full": (
        facts(model(header=SLIDING, options=options("-np 1 --swa-full")), build="b11434"),
        "ok",
        "--swa-full keeps all of it",
        "",
    ),
    "window, no build": (
        facts(model(header=SLIDING), build="b0-unknown"),
        "advice",
        "not known whether this build saves checkpoints",
        "slotgate doctor --measure 2000",
    ),
    "hybrid": (model(header=HYBRID), "advice", "(qwen3next) keeps a state; not known", "--measure"),
    "no file": (
        facts(model(header=None), build="b11434"),
        "ok",
        "not known whether the model has a sliding window",
        "",
    ),
    "memory": (
        model(options=options("-np 1 --cache-ram 16384")),
        "advice",
        "up to 16384 MiB of prompts are kept in memory (--cache-ram), and only 10.0 GiB",
        "--cache-ram 5120",
    ),
    "memory, unsaid": (
        facts(UNSAID, memory_available=4 * GIB),
        "advice",
        "if it is not set, up to 8192 MiB",
        "--cache-ram 2048",
    ),
    "memory, no limit": (
        model(options=options("-np 1 -cram -1")),
        "advice",
        "without a limit",
        "--cache-ram 5120",
    ),
    "memory, router": (
        router(*[model(options=options("-np 1 -cram 8192"))] * 3),
        "advice",
        "up to 8192 MiB of prompts of each of 2 models",
        "--cache-ram 2560",
    ),
    "sleeps": (model(status=Status.SLEEPING, slots=None), "advice", "a look would wake it", "ask"),
    "sleeps unsaved": (
        model(options=options("-np 1 --sleep-idle-seconds 60")),
        "advice",
        "asleep after 60 idle s (--sleep-idle-seconds), and what is in its slots then",
        "[[routes]] save_idle_seconds = 30",
    ),
    "router sleeps": (
        router(model(options=options("-np 1 --sleep-idle-seconds 60"))),
        "ok",
        "slotgate saves its slots after 30 at the latest",
        "",
    ),
    "no route": (
        facts(routes=()),
        "advice",
        "no route leads to it",
        '[[routes]] model = "…", serv',
    ),
    "no models": (router(), "problem", "the router has no models", "--models-dir"),
    "no autoload": (
        router(model(), router=RouterProps(2, False)),
        "advice",
        "it loads no models by itself",
        "--no-models-autoload",
    ),
    "too many": (
        router(model(), server=Server("local", router=Router(models_max=5))),
        "advice",
        "models_max is 5, and the router holds at most 2",
        'models_max = "auto"',
    ),
    "unknown model": (
        router(model(), routes=(Route("m9", "local"),)),
        "problem",
        'the route "m9" asks for the model "m9"',
        '[[routes]] model = "m0"',
    ),
    "nothing loaded": (
        router(model(status=Status.UNLOADED, slots=None, saving=Saving(True))),
        "advice",
        "no model is loaded",
        "ask one of its models something",
    ),
    "maybe another folder": (
        router(
            model(
                status=Status.UNLOADED,
                slots=None,
                saving=Saving(True),
                options=Options(("--slot-save-path", "/x/")),
            )
        ),
        "advice",
        "m0: its slot files go to /x, and slot_save_path is /srv/slots",
        'slot_save_path = "/x"',
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_sentence(name: str) -> None:
    seen, level, text, change = CASES[name]
    report = judge(seen if isinstance(seen, ServerFacts) else facts(seen))
    fitting = [f for f in report.findings if text in f.text and f.level.value == level]
    assert len(fitting) == 1, lines_of(report)
    assert change in fitting[0].change
    assert bool(change) == bool(fitting[0].change)
    assert "\0" not in "".join(lines_of(report))


def test_models_of_which_the_same_is_to_say_are_named_together() -> None:
    report = judge(router(model(), model(saving=Saving(False)), model(saving=Saving(False))))
    said = [f.text for f in report.findings if f.check == "save"]
    assert "m1, m2: it saves no slots, since it was started without --slot-save-path" in said


def test_a_server_that_only_relays_needs_no_slots() -> None:
    seen = facts(model(saving=Saving(False)), routes=(Route("*", "local", cache=False),))
    assert exit_status(judge(seen).findings) == 0


MEASURED = Measured("", 2000, 10.0, 0.2, 0.1, 46_000_000, 2000, 16)


def costs(measurement: Measurement) -> list[Finding]:
    found = judge(facts(model(header=SLIDING), build="b11434"), measurement).findings
    return [f for f in found if f.check in ("measure", "restore", "window")]


def test_what_a_switch_costs() -> None:
    measure, restore = costs(Measurement(MEASURED, notes=("The rest is back",)))
    assert measure.text == (
        "2000 tokens were read in 10.00 s (200 a second), saved in 0.20 s and restored in 0.10 s"
        " (46.0 MB). The rest is back"
    )
    assert restore == ok(
        "restore",
        "a restore helps (of 2016 tokens 16 were read after it): a switch costs 0.30 s, reading"
        " 2000 tokens again 10.00 s",
    )


def test_a_restore_that_does_not_help() -> None:
    _, restore = costs(Measurement(evolve(MEASURED, reused=0, read_again=2016)))
    assert restore.level.value == "problem"
    assert "does not help" in restore.text
    assert "of 2016 tokens 2016 were read" in restore.text
    assert "--swa-full" in restore.change


def test_a_switch_that_costs_more_than_reading() -> None:
    _, restore = costs(Measurement(evolve(MEASURED, read_seconds=0.2)))
    assert (restore.level.value, "min_tokens" in restore.change) == ("advice", True)


def test_what_could_not_be_measured_and_what_stays() -> None:
    found = costs(Measurement(None, "slot 0 is busy", troubles=("x stays",)))
    assert advice("measure", "not measured: slot 0 is busy") in found
    assert advice("measure", "x stays") in found


def test_the_last_line() -> None:
    assert verdict([ok("a", "")]) == "All is well. (1 ok)"
    assert verdict([ok("a", ""), advice("a", "")]).startswith("It works; there is advice. (1 ok, 1")
    assert verdict([advice("a", ""), problem("a", "")]).startswith("It does not work")
    assert [exit_status(found) for found in ([], [advice("", "")], [problem("", "")])] == [0, 1, 2]


def test_no_key_is_shown_and_a_line_stays_one() -> None:
    config = Config(
        Gateway(),
        {"a": Server("a", api_key="key-of-server")},
        (),
        Identity(),
        (Client("me", "key-of-client"),),
    )
    said = "key-of-server\nkey-of-client\x1b[31m"
    report = safe(Report("a", (problem("x", said, said),)), secrets_of(config))
    assert lines_of(report)[1:] == [
        "  problem  x: ***\\n***\\x1b[31m",
        "           change: ***\\n***\\x1b[31m",
    ]
    assert "key-of" not in as_json([], [report])


def test_json_has_an_exit_status() -> None:
    told = json.loads(as_json([ok("state", "s")], [Report("a", (advice("x", "y", "z"),))]))
    assert told == {
        "findings": [{"check": "state", "level": "ok", "text": "s", "change": ""}],
        "servers": [
            {
                "name": "a",
                "findings": [{"check": "x", "level": "advice", "text": "y", "change": "z"}],
            }
        ],
        "exit": 1,
    }
