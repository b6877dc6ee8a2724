"""
Tiny models with random weights, which a real llama-server loads in about 0.1 s.

What they say is noise, in small letters; what they cache is not: prefixes, slots, snapshots and
sliding windows behave as they do with the big ones. The vocabulary is one token per byte, so every
text tokenizes and its length in tokens is its length in bytes (plus one for the token a text begins
with).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""
How the tiny models (and the fake server) turn messages into one prompt.
"""


_GAP = (b"<fim_prefix>", b"<fim_suffix>", b"<fim_middle>")
"""What ``/infill`` puts around the text before and after a gap."""

_WRITTEN = {b"</s>", *(b"<0x%02X>" % letter for letter in range(ord("a"), ord("z") + 1))}
"""What the models write: letters, so that no answer has half a character, and sometimes its end."""


class ExtraMissing(ImportError):
    """
    A package is missing that only :mod:`slotgate.testing` needs.
    """

    def __init__(self, package: str) -> None:
        super().__init__(
            f"slotgate.testing needs the package {package!r}: pip install 'slotgate[test]'"
        )


@frozen
class _Shape:
    """
    The size of a model: what its header says and its tensors must agree on.

    :ivar sliding_window: tokens that a layer sees, 0 for all of them.
    """

    architecture: str
    layers: int
    key_value_heads: int
    sliding_window: int
    context: int
    width: int = 64
    heads: int = 4
    feed_forward: int = 128

    @property
    def head(self) -> int:
        return self.width // self.heads

    @property
    def output(self) -> str:
        """
        The tensor that decides which token is written: gemma3 has none of its own for that.
        """
        return "token_embd" if self.sliding_window else "output"

    def tensors(self, vocabulary: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """
        The name and shape of each tensor; those with one dimension are norms.
        """
        gemma = self.sliding_window > 0
        yield "token_embd", (vocabulary, self.width)
        yield "output_norm", (self.width,)
        if not gemma:
            yield "output", (vocabulary, self.width)
        queries, keys = self.heads * self.head, self.key_value_heads * self.head
        block: dict[str, tuple[int, ...]] = {
            "attn_norm": (self.width,),
            "attn_q": (queries, self.width),
            "attn_k": (keys, self.width),
            "attn_v": (keys, self.width),
            "attn_output": (self.width, queries),
            "ffn_norm": (self.width,),
            "ffn_gate": (self.feed_forward, self.width),
            "ffn_up": (self.feed_forward, self.width),
            "ffn_down": (self.width, self.feed_forward),
        }
        if gemma:
            block["attn_q_norm"] = block["attn_k_norm"] = (self.head,)
            block["post_attention_norm"] = block["post_ffw_norm"] = (self.width,)
        for layer in range(self.layers):
            for name, shape in block.items():
                yield f"blk.{layer}.{name}", shape


def write_tiny_model(
    path: str | PathLike[str],
    *,
    sliding_window: int = 0,
    seed: int = 0,
    context: int = 32768,
) -> None:
    """
    Write a model of 0.5 to 0.9 MB.

    :param path: the file, overwritten.
    :param sliding_window: 0 for a dense llama; otherwise the window, in tokens, of a gemma3, whose
        cache cannot be cut back to any point as a dense one's can.
    :param seed: another seed is another model of the same shape.
    :param context: the longest prompt, in tokens, the model says it was trained for.
    :raises ExtraMissing: without the packages of ``slotgate[test]``.
    """
    try:
        import gguf
        import numpy as np
    except ImportError as missing:
        raise ExtraMissing(missing.name or "gguf") from missing

    if sliding_window:
        shape = _Shape("gemma3", 6, 1, sliding_window, context)
    else:
        shape = _Shape("llama", 2, 4, 0, context)
    writer = gguf.GGUFWriter(fspath(path), shape.architecture)
    _describe(writer, shape)
    vocabulary = _add_vocabulary(writer, gguf)
    written = [i for i, token in enumerate(vocabulary) if token in _WRITTEN]
    random = np.random.default_rng(seed)
    for name, dimensions in shape.tensors(len(vocabulary)):
        loud = written if name == shape.output else []
        writer.add_tensor(f"{name}.weight", _weights(random, dimensions, loud))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: Any, shape: _Shape) -> None:
    writer.add_name("tiny")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_value_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(0)
    if shape.sliding_window:
        writer.add_key_length(shape.head)
        writer.add_value_length(shape.head)
        writer.add_sliding_window(shape.sliding_window)
    else:
        writer.add_rope_dimension_count(shape.head)


def _add_vocabulary(writer: Any, gguf: Any) -> list[bytes]:
    """
    One token per byte, the special ones, and the ``▁`` a llama tokenizer looks for.
    """
    kinds, keys = gguf.TokenType, gguf.Keys.Tokenizer
    special = {b"<unk>": kinds.UNKNOWN, b"<s>": kinds.CONTROL, b"</s>": kinds.CONTROL}
    tokens = {
        **special,
        **{b"<0x%02X>" % byte: kinds.BYTE for byte in range(256)},
        "▁".encode(): kinds.NORMAL,
        **dict.fromkeys(_GAP, kinds.CONTROL),
    }
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(tokens))
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(list(tokens.values()))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    for key, token in zip((keys.FIM_PRE_ID, keys.FIM_SUF_ID, keys.FIM_MID_ID), _GAP, strict=True):
        writer.add_uint32(key, list(tokens).index(token))
    return list(tokens)


def _weights(
    random: np.random.Generator, shape: tuple[int, ...], loud: Sequence[int]
) -> NDArray[np.float32]:
    """
    Noise, or ones for a norm.

    :param loud: rows of so large weights that no other token is ever written.
    """
    import numpy as np

    if len(shape) == 1:
        return np.ones(shape, np.float32)
    weights = random.standard_normal(shape) * 0.05
    weights[loud] *= 40
    return weights.astype(np.float32)
