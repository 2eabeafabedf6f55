"""Writes a llama of half a megabyte with random weights that says one sentence: `python tests/real/tiny_gguf.py FILE`.

Run by the llama-cpp-python environment (numpy, gguf). The weights are random, from a fixed seed; over the output
weights lies one path: each token of the sentence makes the next one all but certain, for any sampling parameters
are, and its end is the end of the text. Thus two runs can be compared. A character outside the vocabulary is its bytes,
one token each.
"""

import importlib
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

#: No token repeats, so each has one successor.
SENTENCE: Final = (
    *("▁Rain", "▁and", "▁s", "un", ":", "▁18", "€", "▁in", "▁Paris", ",", "▁caf", "é", "▁o", "pen", "▁till"),
    *("▁nine", "😀", "▁say", "▁the", "▁people", "▁of", "▁a", "▁small", "▁town", "."),
)

_PIECES: Final = (
    *(piece for piece in SENTENCE if piece.lstrip("▁").isascii()),
    *"▁abcdefghijklmnopqrstuvwxyz",
    "▁w",
    "▁t",
    "he",
    "in",
    "er",
    "<|go|>",
)
_SPECIALS: Final = ("<unk>", "<s>", "</s>")
_GO: Final = "<|go|>"

#: Only the end of each message, so that the long prompts of agents cost nothing. "overlong" asks for more than the
#: context holds, which this server answers with an error of its own.
_TEMPLATE: Final = """\
{% for message in messages %}{{ ((message.content or '') | string)[-200:] }} {% endfor %}\
{% if 'overlong' in (messages[-1].content or '') | string %}\
{% for _ in range(3000) %}no {% endfor %}{% endif %}<|go|>"""

_WIDTH: Final = 64
_FF: Final = 128
_BLOCKS: Final = 2
_CONTEXT: Final = 2048
_SEED: Final = 20261118
_CERTAIN: Final = 2.0


def _vocabulary(gguf: Any) -> tuple[list[str], list[float], list[Any]]:
    """SPM: specials, the 256 bytes, pieces; the longer a piece the likelier."""
    kinds = gguf.TokenType
    tokens = [*_SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256]
    scores = [0.0] * len(tokens)
    for piece in dict.fromkeys(_PIECES):
        tokens.append(piece)
        types.append(kinds.CONTROL if piece == _GO else kinds.NORMAL)
        scores.append(float(len(piece)))
    return tokens, scores, types


def _path(tokens: list[str]) -> list[int]:
    """The sentence in tokens, from the go-ahead to the end of the text."""
    number = {token: index for index, token in enumerate(tokens)}
    path = [number[_GO]]
    for piece in SENTENCE:
        if piece in number:
            path.append(number[piece])
            continue
        path += [number[f"<0x{byte:02X}>"] for byte in piece.encode()]
    path.append(number["</s>"])
    assert len(path) == len(set(path)), "a token stands twice in the sentence"
    return path


def _weights(np: Any, size: int, path: list[int]) -> dict[str, Any]:
    random = np.random.default_rng(_SEED)

    def some(rows: int, columns: int, scale: float) -> Any:
        return (random.standard_normal((rows, columns)) * scale).astype(np.float32)

    embedding = some(size, _WIDTH, 1.0)
    output = some(size, _WIDTH, 0.02)
    for here, after in pairwise(path):
        output[after] += _CERTAIN * embedding[here]
    weights = {
        "token_embd.weight": embedding,
        "output.weight": output,
        "output_norm.weight": np.ones(_WIDTH, np.float32),
    }
    for block in range(_BLOCKS):
        for name, rows, columns in (
            *((f"attn_{part}", _WIDTH, _WIDTH) for part in ("q", "k", "v", "output")),
            *(("ffn_gate", _FF, _WIDTH), ("ffn_up", _FF, _WIDTH), ("ffn_down", _WIDTH, _FF)),
        ):
            weights[f"blk.{block}.{name}.weight"] = some(rows, columns, 0.03)
        for name in ("attn_norm", "ffn_norm"):
            weights[f"blk.{block}.{name}.weight"] = np.ones(_WIDTH, np.float32)
    return weights


def main(path: Path) -> None:
    """Write the file at this path; the same bytes each time."""
    np, gguf = importlib.import_module("numpy"), importlib.import_module("gguf")
    tokens, scores, types = _vocabulary(gguf)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("wiretape-tiny")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_BLOCKS)
    writer.add_feed_forward_length(_FF)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_WIDTH // 4)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(_TEMPLATE)
    for name, values in _weights(np, len(tokens), _path(tokens)).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
