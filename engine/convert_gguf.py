"""A GGUF file becomes a Hugging Face folder (safetensors, tokenizer, chat template) that vLLM on a CPU can load.

vLLM's GGUF kernels need CUDA; the laptop's model comes as GGUF. Runs in the vLLM environment, as a command:
`python -m engine.convert_gguf FILE.gguf FOLDER`, or `--smollm2 CACHE` for the test model. Two traps of transformers 5.19
are undone below. The folder appears under its name only when whole, so a killed conversion leaves nothing half made.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.api import EngineSetupError
from engine.weights import SMOLLM2, fetch

SMOLLM2_FOLDER = Path("weights/smollm2-135m-hf")


def convert(gguf: Path, folder: Path) -> None:
    """Write `gguf` to `folder` as bf16. Waits: about 30 s and 1.1 GB for 135M parameters. Raises `EngineSetupError`."""
    if not gguf.is_file():
        raise EngineSetupError(f"no GGUF file at {gguf}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".convert-", dir=folder.parent) as scratch:
        made = Path(scratch) / "model"
        _write_model(gguf, made)
        _write_tokenizer(gguf, made)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(made, folder)


def _write_model(gguf: Path, folder: Path) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig, GgufConfig

    model: Any = AutoModelForCausalLM.from_pretrained(  # Any: a third party's dynamic class
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    # transformers 5.19 still believes that the model is quantized and refuses to save it.
    model.hf_quantizer, model.is_quantized = None, False
    model.__dict__.pop("quantization_method", None)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.to(torch.bfloat16).save_pretrained(str(folder))
    ids = _token_ids(gguf)
    GenerationConfig(bos_token_id=ids["bos"], eos_token_id=[ids["eos"]], pad_token_id=ids["pad"]).save_pretrained(str(folder))


def _write_tokenizer(gguf: Path, folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)  # Any: as above
    template = _metadata(gguf, "tokenizer.chat_template")
    if template is None:
        raise EngineSetupError(f"{gguf.name} has no chat template: it is a base model and cannot hold a conversation")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(str(folder))


def _token_ids(gguf: Path) -> dict[str, int]:
    eos = _metadata(gguf, "tokenizer.ggml.eos_token_id")
    if eos is None:
        raise EngineSetupError(f"{gguf.name} names no end-of-sequence token (tokenizer.ggml.eos_token_id)")
    bos, pad = _metadata(gguf, "tokenizer.ggml.bos_token_id"), _metadata(gguf, "tokenizer.ggml.padding_token_id")
    return {"eos": int(eos), "bos": int(eos if bos is None else bos), "pad": int(eos if pad is None else pad)}


def _metadata(gguf: Path, key: str) -> Any:
    """A value of the file's header, None where it has no such key."""
    from gguf import GGUFReader

    field = GGUFReader(str(gguf)).fields.get(key)
    return None if field is None else field.contents()


def smollm2(cache: Path) -> Path:
    """SmolLM2-135M-Instruct under `cache` as a Hugging Face folder; fetched and made once. Raises `EngineSetupError`."""
    folder = cache / SMOLLM2_FOLDER
    if not (folder / "tokenizer_config.json").is_file():
        source = fetch(SMOLLM2, cache, lambda line: print(line, file=sys.stderr, flush=True))
        convert(source / SMOLLM2.files[0].name, folder)
    return folder


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m engine.convert_gguf", description=__doc__.splitlines()[0])
    parser.add_argument("gguf", nargs="?", type=Path, help="the GGUF file")
    parser.add_argument("folder", nargs="?", type=Path, help="where the Hugging Face folder goes")
    parser.add_argument("--smollm2", type=Path, metavar="CACHE", help="make the test model under CACHE instead")
    options = parser.parse_args()
    started = time.monotonic()
    try:
        if options.smollm2:
            folder = smollm2(options.smollm2.expanduser())
        elif options.gguf and options.folder:
            folder = options.folder
            convert(options.gguf, folder)
        else:
            parser.error("give a GGUF file and a folder, or --smollm2 CACHE")
    except EngineSetupError as error:
        sys.exit(str(error))
    print(f"{folder} ({time.monotonic() - started:.1f} s)")


if __name__ == "__main__":
    main()
