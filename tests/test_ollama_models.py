"""What llama-server tells of its models, in Ollama's lists."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from slotgate.surfaces.ollama.details import capabilities, human, quantization
from slotgate.surfaces.ollama.errors import OllamaError
from slotgate.surfaces.ollama.models import found, listed, ps, show, shown, tags, version
from slotgate.surfaces.ollama.names import digest, resolved, tagged

NOW = 1_796_078_300.5

# as b11549 answers, SmolLM2 loaded
SINGLE = {
    "models": [{"name": "smol", "size": "", "modified_at": ""}],
    "object": "list",
    "data": [
        {
            "id": "smol",
            "aliases": ["smol"],
            "tags": [],
            "object": "model",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "created": 1796078300,
            "owned_by": "llamacpp",
            "meta": {
                "vocab_type": 2,
                "n_vocab": 49152,
                "n_ctx": 4096,
                "n_ctx_train": 8192,
                "n_embd": 576,
                "n_params": 134515008,
                "size": 96576768,
                "ftype": "Q4_1",
            },
        }
    ],
}
PROPS: dict[str, Any] = {
    "default_generation_settings": {"params": {}, "n_ctx": 2048},
    "total_slots": 2,
    "modalities": {"vision": True, "audio": False},
    "chat_template": "{% if enable_thinking %}<think>{% endif %}",
    "chat_template_caps": {"supports_tools": True, "supports_reasoning_effort": False},
    "is_sleeping": False,
}


def routers(name: str, status: str, *args: str, **more: object) -> dict[str, Any]:
    return {
        "id": name,
        "aliases": ["fast", "old:latest"] if name == "alpha" else [],
        "object": "model",
        "created": 1796078300,
        "status": {"value": status, "args": ["llama-server", *args]},
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        **more,
    }


META = {"n_ctx": 1024, "n_ctx_train": 32768, "n_params": 8030261248, "size": 5, "ftype": "all F32"}
ROUTER = {
    "data": [
        routers("alpha", "loaded", "--sleep-idle-seconds", "60", meta=META),
        routers("org/beta:Q4_K_M", "unloaded", "--ctx-size", "4096"),
        routers("gamma", "sleeping", meta=META),
        routers("embedder", "loaded", "--embeddings", "-c", "512"),
    ]
}


def entries(answer: bytes) -> list[dict[str, Any]]:
    said = json.loads(answer)
    assert list(said) == ["models"]
    models: list[dict[str, Any]] = said["models"]
    return models


# names


def test_a_listed_name_has_a_tag() -> None:
    assert tagged("llama3") == "llama3:latest"
    assert tagged("llama3:8b") == "llama3:8b"
    assert tagged("host:5000/llama3") == "host:5000/llama3:latest"


def test_both_names_of_a_model_are_the_same() -> None:
    assert resolved("m", ["m"]) == resolved("m:latest", ["m"]) == "m"
    assert resolved("m", ["m:latest"]) == resolved("m:latest", ["m:latest"]) == "m:latest"
    # nothing is known of a model that a pattern's route serves
    assert resolved("m:latest", []) == "m"
    assert resolved("m:8b", []) == "m:8b"
    assert resolved(":latest", []) == ":latest"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("alpha", "alpha"),
        ("alpha:latest", "alpha"),
        ("org/beta:Q4_K_M", "org/beta:Q4_K_M"),
        ("fast", "alpha"),
        ("fast:latest", "alpha"),
        ("old", "alpha"),
    ],
)
def test_a_model_is_found_by_its_names(asked: str, name: str) -> None:
    assert found(asked, listed(ROUTER)) == name


def test_a_model_that_is_not_there_is_a_404() -> None:
    with pytest.raises(OllamaError, match="model 'beta:latest' not found") as caught:
        found("beta:latest", listed(ROUTER))
    assert caught.value.status == 404


# lists


def test_the_list_has_the_model_of_a_single_server() -> None:
    [entry] = entries(tags(listed(SINGLE), {"smol": PROPS}))
    assert entry == {
        "name": "smol:latest",
        "model": "smol:latest",
        "size": 96576768,
        "digest": digest("smol"),
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": "unknown",
            "families": ["unknown"],
            "parameter_size": "134.52M",
            "quantization_level": "Q4_1",
        },
        "modified_at": "2026-11-30T22:38:20.000000000Z",
        "capabilities": ["completion", "tools", "vision", "thinking"],
    }
    assert len(entry["digest"]) == 64
    assert set(entry["digest"]) <= set("0123456789abcdef")


def test_the_list_has_all_models_of_a_router() -> None:
    names = [entry["name"] for entry in entries(tags(listed(ROUTER)))]
    assert names == ["alpha:latest", "org/beta:Q4_K_M", "gamma:latest", "embedder:latest"]


def test_only_models_in_memory_run() -> None:
    alpha, embedder = entries(ps(listed(ROUTER), NOW))
    assert (alpha["name"], embedder["name"]) == ("alpha:latest", "embedder:latest")
    assert (alpha["context_length"], embedder["context_length"]) == (1024, 512)
    assert alpha["expires_at"] == "2026-11-30T22:39:20.500000000Z"
    assert datetime.fromisoformat(embedder["expires_at"]).year == 2126
    assert entries(ps(listed(SINGLE), NOW, {"smol": {**PROPS, "is_sleeping": True}})) == []
    [smol] = entries(ps(listed(SINGLE), NOW, {"smol": PROPS}))
    assert smol["context_length"] == 2048


def test_a_listing_that_is_none_has_no_models() -> None:
    some_junk: list[object] = [None, [], {"data": 1}, {"data": [1, {"id": 2}, {"id": ""}]}]
    for junk in some_junk:
        assert entries(tags(listed(junk))) == []


# show


def test_a_model_is_shown_with_what_copilot_and_continue_read() -> None:
    smol = listed(SINGLE)["smol"]
    said = json.loads(show("smol:latest", "smol", smol, PROPS))
    assert said["model_info"] == {
        "general.architecture": "unknown",
        "general.basename": "smol:latest",
        "general.parameter_count": 134515008,
        "unknown.context_length": 2048,
        "unknown.embedding_length": 576,
    }
    assert said["capabilities"] == ["completion", "tools", "vision", "thinking"]
    assert said["parameters"].split() == ["num_ctx", "2048"]
    assert said["template"] == PROPS["chat_template"]


def test_an_unloaded_model_is_shown_as_far_as_it_is_known() -> None:
    said = json.loads(show("b", "b", listed(ROUTER)["org/beta:Q4_K_M"]))
    assert said["model_info"]["unknown.context_length"] == 4096
    assert (said["capabilities"], said["template"]) == (["completion"], "")


def test_show_takes_both_fields_for_the_model() -> None:
    assert shown(b'{"name": "a"}') == shown(b'{"model": "a", "name": "b"}') == "a"
    with pytest.raises(OllamaError, match="model is required"):
        shown(b'{"verbose": true}')


# details


@pytest.mark.parametrize(
    ("file_type", "level"),
    [
        ("all F32", "F32"),
        ("Q4_K - Medium", "Q4_K_M"),
        ("Q3_K - Large (guessed)", "Q3_K_L"),
        ("IQ2_XXS - 2.0625 bpw", "IQ2_XXS"),
        ("mostly Q8_0", "Q8_0"),
        (None, ""),
    ],
)
def test_a_quantization_is_written_as_ollama_does(file_type: object, level: str) -> None:
    assert quantization(file_type) == level


@pytest.mark.parametrize(
    ("parameters", "size"),
    [(134515008, "134.52M"), (8030261248, "8.0B"), (7000000, "7M"), (115904, "116K"), (-1, "")],
)
def test_a_number_of_parameters_is_short(parameters: int, size: str) -> None:
    assert human(parameters) == size


def test_what_a_model_can_do_is_in_its_properties_or_its_command_line() -> None:
    told = listed(SINGLE)["smol"]
    assert capabilities(told, {}) == ["completion"]
    assert capabilities(listed(ROUTER)["embedder"], PROPS) == ["embedding"]
    seeing = {**told, "architecture": {"input_modalities": ["text", "image", "audio"]}}
    assert capabilities(seeing, {}) == ["completion", "vision", "audio"]
    effort = {"chat_template_caps": {"supports_reasoning_effort": True}}
    assert capabilities(told, effort) == ["completion", "thinking"]


# the Python client


def test_the_python_client_takes_the_answers() -> None:
    ollama = pytest.importorskip("ollama")
    names = [
        entry.model
        for entry in ollama.ListResponse.model_validate_json(tags(listed(ROUTER))).models
    ]
    assert names[0] == "alpha:latest"
    process = ollama.ProcessResponse.model_validate_json(ps(listed(ROUTER), NOW)).models[0]
    assert process.expires_at.year == 2026
    answer = ollama.ShowResponse.model_validate_json(
        show("smol", "smol", listed(SINGLE)["smol"], PROPS)
    )
    assert answer.modelinfo["general.basename"] == "smol"
    assert answer.details.parameter_size == "134.52M"


def test_the_version_is_one_that_clients_accept() -> None:
    numbers = [int(part) for part in json.loads(version())["version"].split(".")]
    assert numbers >= [0, 6, 4]
