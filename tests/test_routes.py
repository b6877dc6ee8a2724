"""
Which route a model name takes.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.config import Config, Gateway, Identity, Route, Server
from slotgate.routes import route_for, upstream_model


def config_of(*models: str) -> Config:
    return Config(
        gateway=Gateway(),
        servers={"local": Server("local")},
        routes=tuple(Route(model, "local") for model in models),
        identity=Identity(),
    )


def taken(config: Config, model: str | None) -> tuple[str, str] | None:
    """The model of the route and the route name."""
    found = route_for(config, model)
    return found and (found[0].model, found[1])


def test_an_exact_name_wins_over_an_earlier_pattern() -> None:
    assert taken(config_of("*", "qwen"), "qwen") == ("qwen", "qwen")


def test_the_first_pattern_that_fits_wins() -> None:
    config = config_of("llama-*", "*-8b", "*")
    assert taken(config, "llama-8b") == ("llama-*", "llama-8b")
    assert taken(config, "qwen-8b") == ("*-8b", "qwen-8b")
    assert taken(config, "gemma") == ("*", "gemma")


def test_each_model_of_a_pattern_has_a_route_name_of_its_own() -> None:
    config = config_of("*")
    assert [taken(config, model) for model in ("a", "openai/a")] == [
        ("*", "a"),
        ("*", "openai/a"),
    ]


@pytest.mark.parametrize("model", [None, ""])
def test_a_request_without_a_model_takes_the_pattern_for_all_else_the_first_route(
    model: str | None,
) -> None:
    assert taken(config_of("qwen", "llama-*", "*"), model) == ("*", "*")
    assert taken(config_of("qwen", "llama-*"), model) == ("qwen", "qwen")


def test_no_route_fits() -> None:
    assert route_for(config_of("qwen", "llama-*"), "gemma") is None


def test_upper_and_lower_case_differ() -> None:
    assert route_for(config_of("Qwen", "LLAMA-*"), "qwen") is None
    assert route_for(config_of("Qwen", "LLAMA-*"), "llama-8b") is None


def test_a_name_with_brackets_can_be_asked_for_exactly() -> None:
    assert taken(config_of("*", "qwen[q4]"), "qwen[q4]") == ("qwen[q4]", "qwen[q4]")


@given(st.lists(st.text(max_size=6), max_size=5, unique=True), st.text(max_size=6))
def test_whatever_is_asked_for_the_route_name_is_what_was_asked(
    models: list[str], asked: str
) -> None:
    found = route_for(config_of(*models, "*"), asked)
    assert found is not None
    if asked:
        assert found[1] == asked
    if asked in models:
        assert found[0].model == asked


@pytest.mark.parametrize(
    ("configured", "asked", "sent"),
    [
        ("", "qwen", "qwen"),
        ("", "openai/qwen", "qwen"),
        ("", "openai/openai/qwen", "openai/qwen"),
        ("", "org/openai/qwen", "org/openai/qwen"),
        ("", None, None),
        ("org/qwen", "anything", "org/qwen"),
        ("org/qwen", None, "org/qwen"),
        ("openai/qwen", "anything", "openai/qwen"),
    ],
)
def test_the_server_is_asked_for_its_own_name(
    configured: str, asked: str | None, sent: str | None
) -> None:
    assert upstream_model(Route("*", "local", upstream_model=configured), asked) == sent
