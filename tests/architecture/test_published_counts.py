"""Parameter counts against what the makers of the models published."""

from __future__ import annotations

import pytest

from rpeg.architecture import named

# name: (parameters, where they are published)
TOTALS = {
    "Llama-13B": (13.0e9, "arXiv:2302.13971 table 2"),
    "Llama-30B": (32.5e9, "arXiv:2302.13971 table 2"),
    "Llama-65B": (65.2e9, "arXiv:2302.13971 table 2"),
    "Llama-2-7B": (6.74e9, "huggingface.co/meta-llama/Llama-2-7b-hf, safetensors"),
    "Llama-3.1-8B": (8.03e9, "huggingface.co/meta-llama/Llama-3.1-8B, safetensors"),
    "Llama-3.1-70B": (70.6e9, "huggingface.co/meta-llama/Llama-3.1-70B, safetensors"),
    "Llama-3.1-405B": (405.85e9, "huggingface.co/meta-llama/Llama-3.1-405B, safetensors"),
    "Llama-3.2-1B": (1.23e9, "huggingface.co/meta-llama/Llama-3.2-1B, model card"),
    "Llama-3.2-3B": (3.21e9, "huggingface.co/meta-llama/Llama-3.2-3B, model card"),
    "Mistral-7B": (7.24e9, "huggingface.co/mistralai/Mistral-7B-v0.1, safetensors"),
    "Mixtral-8x7B": (46.7e9, "mistral.ai/news/mixtral-of-experts"),
    "Mixtral-8x22B": (141e9, "mistral.ai/news/mixtral-8x22b"),
    "Qwen2.5-1.5B": (1.54e9, "huggingface.co/Qwen/Qwen2.5-1.5B, model card"),
    "Qwen2.5-3B": (3.09e9, "huggingface.co/Qwen/Qwen2.5-3B, model card"),
    "Qwen2.5-7B": (7.61e9, "huggingface.co/Qwen/Qwen2.5-7B, model card"),
    "Qwen2.5-14B": (14.7e9, "huggingface.co/Qwen/Qwen2.5-14B, model card"),
    "Qwen2.5-72B": (72.7e9, "huggingface.co/Qwen/Qwen2.5-72B, model card"),
    "Qwen3-8B": (8.2e9, "huggingface.co/Qwen/Qwen3-8B, model card"),
    "Qwen3-32B": (32.8e9, "huggingface.co/Qwen/Qwen3-32B, model card"),
    "Qwen3-30B-A3B": (30.5e9, "huggingface.co/Qwen/Qwen3-30B-A3B, model card"),
    "Qwen3-235B-A22B": (235e9, "huggingface.co/Qwen/Qwen3-235B-A22B, model card"),
    "Qwen3-Next-80B-A3B": (80e9, "huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct, model card"),
    "Qwen3.5-397B-A17B": (397e9, "huggingface.co/Qwen/Qwen3.5-397B-A17B, model card"),
    "DeepSeek-V2": (236e9, "arXiv:2405.04434 abstract"),
    "DeepSeek-V2-Lite": (15.7e9, "arXiv:2405.04434 appendix B"),
    "DeepSeek-V3": (671e9, "arXiv:2412.19437 abstract"),
    "GLM-5": (744e9, "huggingface.co/zai-org/GLM-5, model card"),
    "gpt-oss-120b": (116.83e9, "arXiv:2508.10925 table 1"),
    "gpt-oss-20b": (20.91e9, "arXiv:2508.10925 table 1"),
    "Llama-4-Maverick": (400e9, "huggingface.co/meta-llama/Llama-4-Maverick-17B-128E-Instruct, model card"),
    "Nemotron-3-Nano-30B-A3B": (31.6e9, "research.nvidia.com/labs/nemotron/Nemotron-3"),
    "Nemotron-4-340B": (341.0e9, "arXiv:2406.11704 table 1, embedding + non-embedding"),
    "Gemma-2B": (524_550_144 + 1_981_884_416, "arXiv:2403.08295 table 2"),
    "Gemma-7B": (786_825_216 + 7_751_248_896, "arXiv:2403.08295 table 2"),
    "Gemma-2-9B": (918e6 + 8_324e6, "arXiv:2408.00118 table 2"),
    "Gemma-2-27B": (1_180e6 + 26_047e6, "arXiv:2408.00118 table 2"),
    "Gemma-3-4B": (675e6 + 3_209e6, "arXiv:2503.19786 table 1, without vision"),
    "Gemma-3-27B": (1_416e6 + 25_600e6, "arXiv:2503.19786 table 1, without vision"),
    "TinyLlama-1.1B": (1.1e9, "arXiv:2401.02385 abstract"),
    "MPT-30b": (29.95e9, "huggingface.co/mosaicml/mpt-30b, model card"),
    "GPT-J-6B": (6_053_381_344, "huggingface.co/EleutherAI/gpt-j-6b, model card"),
    "GPT-NeoX-20B": (20_554_567_680, "huggingface.co/EleutherAI/gpt-neox-20b, model card"),
    "StableLM-Alpha-3B": (3_638_525_952, "huggingface.co/stabilityai/stablelm-base-alpha-3b, model card"),
}
EXACT = {
    "BLOOM": (176_247_271_424, "huggingface.co/bigscience/bloom, model card"),
    "BLOOM-7.1B": (7_069_016_064, "huggingface.co/bigscience/bloom-7b1, model card"),
    "Pythia-1.4B": (1_414_647_808, "huggingface.co/EleutherAI/pythia-1.4b, model card"),
    "Pythia-2.8B": (2_775_208_960, "huggingface.co/EleutherAI/pythia-1.4b, model card"),
    "Pythia-6.9B": (6_857_302_016, "huggingface.co/EleutherAI/pythia-1.4b, model card"),
    "Pythia-12B": (11_846_072_320, "huggingface.co/EleutherAI/pythia-1.4b, model card"),
}
# name: (parameters a token meets, whether they count the embedding, where they are published)
ACTIVE = {
    "Mixtral-8x7B": (12.9e9, True, "mistral.ai/news/mixtral-of-experts"),
    "Mixtral-8x22B": (39e9, True, "mistral.ai/news/mixtral-8x22b"),
    "DeepSeek-V3": (37e9, True, "arXiv:2412.19437 abstract"),
    "DeepSeek-V2": (21e9, False, "arXiv:2405.04434 abstract"),
    "Qwen3-235B-A22B": (22e9, True, "huggingface.co/Qwen/Qwen3-235B-A22B, model card"),
    "gpt-oss-120b": (5.13e9, False, "arXiv:2508.10925 table 1"),
    "gpt-oss-20b": (3.61e9, False, "arXiv:2508.10925 table 1"),
    "Llama-4-Maverick": (
        17e9,
        True,
        "huggingface.co/meta-llama/Llama-4-Maverick-17B-128E-Instruct, model card",
    ),
    "Nemotron-3-Nano-30B-A3B": (3.6e9, True, "research.nvidia.com/labs/nemotron/Nemotron-3"),
}


@pytest.mark.parametrize("name", TOTALS)
def test_totals(name: str) -> None:
    published, _ = TOTALS[name]
    assert named(name).parameters() == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize("name", EXACT)
def test_exact_totals(name: str) -> None:
    assert named(name).parameters() == EXACT[name][0]


@pytest.mark.parametrize("name", ACTIVE)
def test_active(name: str) -> None:
    """Two digits are published for most: 2 %."""
    published, embedding, _ = ACTIVE[name]
    model = named(name)
    counted = model.active_parameters - (0 if embedding else model.embedding_parameters)
    assert counted == pytest.approx(published, rel=0.02)
