"""A model folder with the dimensions of a real model and no weights (vLLM fills them with chance), and the replies it shall give."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SIZES: dict[str, dict[str, int]] = {
    "tiny": {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "7b": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    },
    "32b": {
        "hidden_size": 5120,
        "intermediate_size": 27648,
        "num_hidden_layers": 64,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
    },
    "72b": {
        "hidden_size": 8192,
        "intermediate_size": 29568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
    },
}
END_OF_TURN = 2  # <|im_end|> of the packed tokenizer
_SHARED: dict[str, Any] = {  # Any: JSON
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "vocab_size": 49152,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": END_OF_TURN,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "use_cache": True,
    "use_sliding_window": False,
}


def replies() -> list[str]:
    """The corpus."""
    return (HERE / "replies.txt").read_text("utf-8").splitlines()


def make(size: str, tokenizer: Path, folder: Path) -> Path:
    """Write the model folder, and beside its files the replies' token ids (`forced.json`); returns the latter."""
    from tokenizers import Tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tokenizer / name, folder)
    (folder / "config.json").write_text(json.dumps(_SHARED | SIZES[size]), "utf-8")
    encode = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).encode
    rows = [[*encode(text, add_special_tokens=False).ids, END_OF_TURN] for text in replies()]
    path = folder / "forced.json"
    path.write_text(json.dumps(rows), "utf-8")
    return path
