"""What a router says of its models, and where that does not fit the configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.config import Router, Server
from slotgate.llama.agreement import disagreements, limit_of
from slotgate.llama.errors import Junk
from slotgate.llama.models import (
    DEFAULT_MODELS_MAX,
    Change,
    Lines,
    Model,
    RouterProps,
    Status,
    change_from,
    is_reload,
    models_from,
    router_from,
)

ARGS = ("llama-server", "--host", "127.0.0.1", "--port", "34567", "--no-webui", "--alias", "alpha")


def said_of(name: object = "alpha", status: object = None, **fields: object) -> dict[str, object]:
    """A model as ``GET /models`` says it."""
    status = {"value": "unloaded"} if status is None else status
    return {"id": name, "aliases": [], "status": status, **fields}


def models(*said: object) -> tuple[Model, ...]:
    return models_from({"data": list(said), "object": "list"})


def with_options(*args: str) -> Model:
    return Model("alpha", args=(*ARGS, *args))


def test_a_loaded_model_is_read_with_its_aliases_and_command_line() -> None:
    status = {"value": "loaded", "args": list(ARGS), "preset": "[alpha]\n"}
    assert models(said_of("org/ö dd:Q4", status, aliases=["a1", "openai/a2"])) == (
        Model("org/ö dd:Q4", ("a1", "openai/a2"), Status.LOADED, args=ARGS),
    )


def test_a_model_that_failed_says_so_with_its_exit_code() -> None:
    (model,) = models(said_of(status={"value": "unloaded", "failed": True, "exit_code": 1}))
    assert (model.status, model.failed, model.exit_code) == (Status.UNLOADED, True, 1)
    (model,) = models(said_of())
    assert (model.failed, model.exit_code) == (False, None)


def test_the_order_of_the_answer_is_kept() -> None:
    assert [model.id for model in models(said_of("b"), said_of("a"))] == ["b", "a"]


@pytest.mark.parametrize("word", ["unloaded", "loading", "loaded", "sleeping"])
def test_each_status_is_known(word: str) -> None:
    (model,) = models(said_of(status={"value": word}))
    assert model.status.value == word


@pytest.mark.parametrize("word", ["downloading", "", None, 3, [], {}])
def test_what_is_no_status_of_a_model_in_memory_counts_as_unloaded(word: object) -> None:
    (model,) = models(said_of(status={"value": word}))
    assert model.status is Status.UNLOADED


def test_only_an_unloaded_model_takes_no_place() -> None:
    assert [status for status in Status if not status.running] == [Status.UNLOADED]


@pytest.mark.parametrize("value", [None, True, "1", 1.0])
def test_an_exit_code_is_a_whole_number(value: object) -> None:
    (model,) = models(said_of(status={"value": "unloaded", "exit_code": value}))
    assert model.exit_code is None


def test_what_is_no_text_is_no_alias_and_no_argument() -> None:
    status = {"value": "loaded", "args": ["--port", 5, None, "6"]}
    (model,) = models(said_of(status=status, aliases=["a", 1, None]))
    assert (model.aliases, model.args) == (("a",), ("--port", "6"))
    (model,) = models(said_of(status={"value": "loaded", "args": "--port"}, aliases="abc"))
    assert (model.aliases, model.args) == ((), ())


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ([], "no list of models"),
        ({}, "no list of models"),
        ({"data": {}}, "no list of models"),
        ({"data": [5]}, "without a status"),
        ({"data": [said_of(status="loaded")]}, "without a status"),
        ({"data": [said_of(None)]}, "without an id"),
        ({"data": [said_of("")]}, "without an id"),
    ],
)
def test_what_are_not_the_models_of_a_router_is_junk(answer: object, complaint: str) -> None:
    with pytest.raises(Junk, match=complaint):
        models_from(answer)


# the command line of a model


def test_an_option_is_the_argument_after_its_name() -> None:
    model = with_options("--ctx-size", "4096")
    assert model.option("--ctx-size") == "4096"
    assert model.option("--no-webui") == "--alias"  # a flag has none: nobody asks for it
    assert model.option("--threads") is None
    assert Model("alpha", args=("--port",)).option("--port") is None


def test_the_process_of_a_model_is_told_by_its_port() -> None:
    assert with_options().process == "34567"
    assert Model("alpha").process == ""


def test_the_folder_of_the_slot_files() -> None:
    assert with_options("--slot-save-path", "/slots/").slot_save_path == "/slots/"
    assert with_options().slot_save_path == ""


@pytest.mark.parametrize(
    ("value", "slots"),
    [("1", 1), ("4", 4), ("0", None), ("-1", None), ("many", None), ("", None)],
)
def test_the_number_of_slots(value: str, slots: int | None) -> None:
    assert with_options("--parallel", value).parallel == slots


def test_without_its_option_a_model_decides_the_number_of_slots() -> None:
    assert with_options().parallel is None


@pytest.mark.parametrize(
    ("value", "seconds"), [("30", 30.0), ("0.5", 0.5), ("0", 0.0), ("-1", None), ("no", None)]
)
def test_when_a_model_falls_asleep(value: str, seconds: float | None) -> None:
    assert with_options("--sleep-idle-seconds", value).sleep_seconds == seconds


def test_without_its_option_a_model_stays_awake() -> None:
    assert with_options().sleep_seconds is None


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_what_is_no_finite_number_is_none(value: str) -> None:
    model = with_options("--parallel", value, "--sleep-idle-seconds", value)
    assert (model.parallel, model.sleep_seconds) == (None, None)


# what the server is


def test_a_router_says_its_role_its_limit_and_whether_it_loads() -> None:
    assert router_from({"role": "router", "max_instances": 2, "models_autoload": True}) == (
        RouterProps(2, True)
    )
    assert router_from({"role": "router", "max_instances": 0, "models_autoload": False}) == (
        RouterProps(0, False)
    )


@pytest.mark.parametrize("most", [None, True, -1, "2", 2.0])
def test_a_router_without_a_limit_that_is_one_has_the_usual_one(most: object) -> None:
    assert router_from({"role": "router", "max_instances": most}) == (
        RouterProps(DEFAULT_MODELS_MAX, True)
    )


@pytest.mark.parametrize("answer", [{}, {"total_slots": 1}, {"role": "model"}])
def test_every_other_server_has_one_model(answer: object) -> None:
    assert router_from(answer) is None


@pytest.mark.parametrize("answer", [None, [], "router"])
def test_what_are_no_properties_is_junk(answer: object) -> None:
    with pytest.raises(Junk, match="/props"):
        router_from(answer)


# events


def event(data: object, model: object = "alpha", kind: str = "status_change") -> bytes:
    return json.dumps({"model": model, "event": kind, "data": data}).encode()


@pytest.mark.parametrize(
    ("data", "change"),
    [
        (event({"status": "loading"}, kind="model_status"), Change("alpha", Status.LOADING)),
        (
            event({"status": "loading", "progress": {"value": 0.0}}),
            Change("alpha", Status.LOADING),
        ),
        (event({"status": "loaded", "info": {"id": "x"}}), Change("alpha", Status.LOADED)),
        (event({"status": "sleeping"}), Change("alpha", Status.SLEEPING)),
        (event({"status": "unloaded", "exit_code": 0}), Change("alpha", Status.UNLOADED, 0)),
        (event({"status": "unloaded", "exit_code": 1}), Change("alpha", Status.UNLOADED, 1)),
        (event({"status": "unloaded", "exit_code": True}), Change("alpha", Status.UNLOADED)),
        (event({"status": "loaded"}, "org/ö dd:Q4"), Change("org/ö dd:Q4", Status.LOADED)),
    ],
)
def test_what_an_event_says_of_a_model(data: bytes, change: Change) -> None:
    assert change_from(data) == change


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not JSON",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"5",
        event({}),
        event(None),
        event("loaded"),
        event({"progress": 1}, kind="download_progress"),
        event({"status": "loaded"}, None),
        event({"status": "loaded"}, 5),
        b'{"event":"models_reload","model":"*"}',
    ],
)
def test_what_says_nothing_of_a_status_is_passed_over(data: bytes) -> None:
    assert change_from(data) is None


def test_a_reload_of_the_models_is_told_from_the_rest() -> None:
    assert is_reload(b'{"model":"*","event":"models_reload","data":{}}')
    assert not is_reload(event({"status": "loaded"}))


# the stream that they come in


def pieces(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The stream, cut at these places."""
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in pairwise(places)]


def read(*stream: bytes) -> list[bytes]:
    lines = Lines()
    return [data for piece in stream for data in lines.events(piece)]


DATA = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])).map(str.encode)
NOISE = st.sampled_from([b": a comment", b"id: 3", b"event: x", b"retry: 5", b"", b"datax: 1"])
EVENTS = st.lists(st.tuples(DATA, st.lists(NOISE, max_size=3), st.sampled_from([b"\n", b"\r\n"])))


@given(EVENTS, st.lists(st.integers(0, 10_000)))
def test_events_are_read_wherever_their_bytes_are_cut(
    events: list[tuple[bytes, list[bytes], bytes]], cuts: list[int]
) -> None:
    stream = b"".join(end.join([*noise, b"data: " + data, b"", b""]) for data, noise, end in events)
    assert read(*pieces(stream, cuts)) == [data for data, _, _ in events]


def test_an_event_is_read_as_soon_as_its_line_has_ended() -> None:
    lines = Lines()
    assert list(lines.events(b"data: 1")) == []
    assert list(lines.events(b"\n")) == [b"1"]


def test_one_blank_after_the_colon_does_not_belong_to_the_data() -> None:
    assert read(b"data:1\ndata: 2\ndata:  3\n") == [b"1", b"2", b" 3"]


def test_an_event_without_end_is_junk() -> None:
    with pytest.raises(Junk, match="without end"):
        read(*[b"data: " + b"x" * 100_000] * 20)


def test_a_long_stream_of_events_is_none() -> None:
    piece = b"data: " + b"x" * 100_000 + b"\n\n"
    assert len(read(*[piece] * 20)) == 20


# the router and the configuration

FITTING = ("--slot-save-path", "/slots/", "--parallel", "2")


def server(folder: str | None = "/slots", models_max: int | None = None) -> Server:
    router = Router(models_max=models_max)
    return Server("local", slot_save_path=None if folder is None else Path(folder), router=router)


def complaints(
    configured: Server | None = None,
    *found: Model,
    slots: Sequence[int] = (0,),
    **props: Any,
) -> list[str]:
    router = RouterProps(**{"models_max": 2, "autoload": True, **props})
    return disagreements(configured or server(), slots, router, found)


def test_the_limit_is_the_routers_unless_it_is_configured() -> None:
    assert limit_of(server(), RouterProps(2, True)) == 2
    assert limit_of(server(), RouterProps(0, True)) == 0
    assert limit_of(server(models_max=3), RouterProps(2, True)) == 3
    assert limit_of(server(models_max=0), RouterProps(2, True)) == 0


def test_what_fits_is_not_spoken_of() -> None:
    assert complaints(server(models_max=2), with_options(*FITTING)) == []
    assert complaints(server("/slots"), with_options(*FITTING)) == []
    assert complaints(server(models_max=1), slots=[0, 1]) == []


@pytest.mark.parametrize("ours", [3, 0])
def test_a_limit_above_the_routers_is_told(ours: int) -> None:
    (said,) = complaints(server(models_max=ours), models_max=2)
    assert said.startswith(f"models_max is {ours}, and the router holds at most 2 models")


@pytest.mark.parametrize("ours", [None, 0, 1, 100])
def test_every_limit_fits_a_router_without_one(ours: int | None) -> None:
    assert complaints(server(models_max=ours), models_max=0) == []


def test_a_router_that_does_not_load_is_told() -> None:
    (said,) = complaints(autoload=False)
    assert "--no-models-autoload" in said


def test_a_model_without_a_folder_is_told_and_no_more_of_its_folder() -> None:
    (said,) = complaints(server("/slots"), with_options("--parallel", "1"))
    assert said == "alpha: started without --slot-save-path, so nothing is saved"


def test_another_folder_is_told_with_both_names() -> None:
    (said,) = complaints(server("/ours"), with_options(*FITTING))
    assert said == (
        "alpha: the slot files go to /slots, and slot_save_path is /ours; is that the same folder?"
    )


def test_a_folder_that_we_are_not_told_of_can_not_be_another() -> None:
    assert complaints(server(None), with_options(*FITTING)) == []


def test_the_root_folder_is_itself() -> None:
    root = ("--slot-save-path", "/", "--parallel", "1")
    assert complaints(server("/"), with_options(*root)) == []


def test_a_slot_that_the_model_lacks_is_told() -> None:
    (said,) = complaints(server(), with_options(*FITTING), slots=[0, 2])
    assert said == "alpha: has 2 slots (--parallel), and a route uses slot 2"
    assert complaints(server(), with_options(*FITTING), slots=[0, 1]) == []


def test_a_number_of_slots_that_nobody_set_is_told() -> None:
    (said,) = complaints(server(), with_options(*FITTING[:2]))
    assert said.startswith("alpha: started without --parallel")


def test_where_no_route_has_a_cache_the_slots_do_not_matter() -> None:
    assert complaints(server(), Model("alpha"), slots=[]) == []


def test_models_with_the_same_problem_share_a_sentence() -> None:
    found = [Model(name, args=FITTING[:2]) for name in ("alpha", "beta")]
    found.append(Model("gamma", args=FITTING))
    (said,) = complaints(server(), *found)
    assert said.startswith("alpha, beta: started without --parallel")


def test_each_problem_is_a_sentence_of_its_own() -> None:
    said = complaints(
        server("/ours", models_max=3), with_options(*FITTING), slots=[5], autoload=False
    )
    assert len(said) == 4
