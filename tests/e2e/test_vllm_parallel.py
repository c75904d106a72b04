"""Tensor parallelism for real, on two CPU cores: a tiny random model with an even number of heads, split over two workers.

SmolLM2 has nine heads and cannot be split. Shows that the path works, not that it is fast. A start takes one to two minutes, so it
runs where `CI=true` (or STRETTO_SLOW_TESTS=1) is set.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from engine.api import Delta, EngineSetupError, Generation, Message, Sampling
from engine.llm.vllm import VllmModel
from engine.llm.vllm.embedded import core_pids
from engine.vllm_args import plan

TOKENIZER = Path(os.environ.get("STRETTO_CACHE_DIR", "~/.cache/stretto")).expanduser() / "weights/smollm2-135m-hf"

if importlib.util.find_spec("vllm") is None:
    pytest.skip("NOT RUN HERE: real vLLM; use .venv-vllm/bin/python -m pytest tests/e2e/test_vllm_parallel.py", allow_module_level=True)
if not {os.environ.get("CI"), os.environ.get("STRETTO_SLOW_TESTS")} & {"true", "1"}:
    pytest.skip("NOT RUN HERE: two vLLM workers take minutes to start; set STRETTO_SLOW_TESTS=1", allow_module_level=True)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),  # torch's and transformers' own
    pytest.mark.may_block,
]


def make_model(folder: Path) -> None:
    """Two layers, four heads, random weights, SmolLM2's tokenizer."""
    import torch
    from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=49152,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(str(folder))
    AutoTokenizer.from_pretrained(str(TOKENIZER)).save_pretrained(str(folder))
    GenerationConfig(bos_token_id=1, eos_token_id=[2], pad_token_id=2).save_pretrained(str(folder))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[VllmModel, None]:
    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder)
    made = VllmModel(plan(str(folder), {"tensor_parallel_size": 2}, device="cpu", context_tokens=1024))
    await made.start()
    yield made
    await made.close()
    assert core_pids() == ()


async def test_two_workers_answer_and_hit_the_prefix(model: VllmModel) -> None:
    prompt = await model.render([Message(role="user", text="Say something. " * 30)], (), None)
    replies: list[list[Delta]] = []
    for number in range(2):
        asked = Generation(request_id=f"r{number}", prompt=prompt, sampling=Sampling(max_tokens=16, temperature=0.0))
        async with aclosing(model.generate(asked)) as deltas:
            replies.append([delta async for delta in deltas])
    first, second = (reply[-1].usage for reply in replies)
    assert first is not None
    assert second is not None
    assert first.output_tokens > 0
    assert (first.cached_tokens, second.cached_tokens) == (0, (len(prompt.ids) - 1) // 32 * 32)


async def test_heads_that_do_not_divide_are_refused_with_the_reason() -> None:
    with pytest.raises(EngineSetupError, match="must divide the model's attention heads"):
        await VllmModel(plan(str(TOKENIZER), {"tensor_parallel_size": 2}, device="cpu", context_tokens=512)).start()
