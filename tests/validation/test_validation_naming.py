"""What records call devices, stacks, links and dtypes, as what the model knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rpeg.cost.precision import FLOAT32, MIXED, PURE_BF16, Precision
from rpeg.cost.stack import stack
from rpeg.errors import InputError
from rpeg.validation import naming
from rpeg.validation.links import network_rate

SHARDED = replace(MIXED, weights="float32", master=False)
FP16 = Precision("float16", "float16", "float16", activations="float16")


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("H100-80GB", "h100-sxm"),
        ("H100-80GB (not stated in section)", "h100-sxm"),
        ("H100-96GB-HBM2e-500W", "h100-96gb"),
        ("H200-141GB", "h200"),
        ("A100", "a100-80gb-sxm"),
        ("A100-40GB", "a100-40gb-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"),
        ("GB200-186GB", "gb200"),
        ("GH200-96GB", "gh200-96gb"),
        ("B200-180GB (power limited)", "b200"),
        ("L40S-48GB", "l40s"),
        ("A10G-24GB", "a10g"),
        ("H20-96GB (96 H20 per page text)", "h20"),
        ("A800-80GB inferred (cluster QH), not stated in the figure", "a800-80gb-sxm"),
    ],
)
def test_devices(gpu: str, name: str) -> None:
    assert naming.kind_of(gpu).name == name


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(InputError, match="MI300X"):
        naming.kind_of("MI300X")


def test_an_architecture_by_its_shape() -> None:
    shape = {"name": "mine", "layers": 4, "hidden": 256, "heads": 4, "kv_heads": 2, "ffn": 512, "vocab": 1000}
    found = naming.architecture_of(
        {**shape, "gated_mlp": True, "dims_source": "its config", "note": "a text"}
    )
    assert (found.layers, found.hidden, found.kv_heads, found.ffn, found.vocabulary) == (4, 256, 2, 512, 1000)


def test_an_architecture_by_its_name() -> None:
    assert naming.architecture_of("Llama-3.1-8B") == naming.architecture_of({"name": "Llama-3.1-8B"})


def test_a_shape_without_a_vocabulary_has_the_one_of_gpt2() -> None:
    assert (
        naming.architecture_of({"name": "mine", "layers": 4, "hidden": 256, "heads": 4}).vocabulary == 50304
    )


def test_an_unknown_number_of_a_shape_is_named() -> None:
    with pytest.raises(InputError, match="sliding"):
        naming.architecture_of({"name": "mine", "layers": 4, "hidden": 256, "heads": 4, "sliding": 128})


@pytest.mark.parametrize(
    ("framework", "record", "name"),
    [
        ("Megatron-LM", {}, "megatron"),
        ("NeMo/Megatron-Core", {}, "megatron"),
        ("NeMo AutoModel (PyTorch FSDP2 + TE/DeepEP)", {}, "flash"),
        ("Megatron-DeepSpeed (ZeRO-1, 1F1B)", {}, "eager"),
        ("MaxText (JAX)", {}, "compiled"),
        ("Levanter", {}, "compiled"),
        ("DeepSpeed", {}, "flash"),
        ("torchtitan FSDP2", {"compile": True}, "compiled"),
        ("torchtitan FSDP2", {}, "flash"),
        ("Composer/PyTorch FSDP1", {}, "flash"),
        ("a framework of tomorrow", {}, "flash"),
        ("a framework of tomorrow", {"compile": True}, "compiled"),
        ("a framework of tomorrow", {"attention": "eager"}, "eager"),
    ],
)
def test_training_stacks(framework: str, record: dict[str, Any], name: str) -> None:
    assert naming.training_stack_of(framework, record) == name
    assert stack(name).name == name


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("TensorRT-LLM v0.9", "tensorrt-llm"),
        ("trtllm 1.2.0rc6.post3", "tensorrt-llm"),
        ("vllm nightly-5b8c30d62b754b57", "vllm"),
        ("sglang 0.5.9", "sglang"),
        ("Deepspeed-MII", "deepspeed"),
        ("Hugging Face generate", "eager"),
        ("HF transformers 4.40", "eager"),
        ("FasterTransformer", "tensorrt-llm"),
        ("lmdeploy 0.6", "vllm"),
        ("NeMo RL (Megatron-Core + vLLM)", "vllm"),
        ("an engine of tomorrow", "vllm"),
    ],
)
def test_serving_stacks(engine: str, name: str) -> None:
    assert naming.serving_stack_of(engine) == name
    assert stack(name).name == name


@pytest.mark.parametrize(
    ("words", "gigabits_per_device"),
    [
        ("NVLink4 + 400Gb/s NDR per GPU (typical; not restated)", 400),
        ("NVLink5 8-GPU + 800Gb/s per GPU (typical of the DGX system)", 800),
        ("400 Gb/s RDMA per GPU", 400),
        ("NVLink; 400Gb/s CX-7 RDMA per GPU", 400),
        ("1600 Gbps/node RoCE; NVSwitch in node", 200),
        ("4x100Gb RoCE per node; NVSwitch in node", 50),
        ("NVSwitch, 8x200Gb/s HDR IB per node (from a summary)", 200),
        ("NVLink in node; 4 Omni-Path 100Gb/s links per node", 50),
        ("intra_node_bandwidth=150 GB/s, inter_node_bandwidth=800 Gbps per node", 100),
        ("8xH100 nodes, EFA", None),
        ("NVLink (4x A100 node)", None),
        ("", None),
    ],
)
def test_rates_in_words(words: str, gigabits_per_device: float | None) -> None:
    rate = network_rate(words, devices_per_node=8)
    assert rate == (None if gigabits_per_device is None else pytest.approx(gigabits_per_device * 1e9 / 8))


def test_fabrics() -> None:
    fabric = naming.fabric_of({"gpu": "H100-80GB", "gpus_per_node": 4, "interconnect": "200 Gb/s per GPU"})
    assert fabric.devices_per_node == 4
    assert [hop.link.bandwidth_bytes_per_second for hop in fabric.hops(16)] == [4.5e11, 2.5e10]
    assert [hop.fanout for hop in fabric.hops(16)] == [4, 4]


@pytest.mark.parametrize(
    ("gpu", "words", "network"),
    [
        ("H100-80GB", "", 5e10),
        ("H100-80GB", "EFA/AWS cluster", 5e10),
        ("A100-40GB", "", 2.5e10),
        ("A100-40GB", "EFA", 6.25e9),
        ("H100-96GB-HBM2e-500W", "", 5e10),
        ("L40S-48GB", "", 6.25e9),
    ],
)
def test_typical_networks(gpu: str, words: str, network: float) -> None:
    fabric = naming.fabric_of({"gpu": gpu, "interconnect": words})
    assert fabric.hops(2, stride=fabric.devices_per_node)[0].link.bandwidth_bytes_per_second == network


def test_a_kind_keeps_its_own_nvlink() -> None:
    fabric = naming.fabric_of({"gpu": "A100-80GB PCIe"})
    assert fabric.levels[0][0].bandwidth_bytes_per_second < 3.5e11


def test_an_nvlink_domain_joins_its_nodes() -> None:
    fabric = naming.fabric_of({"gpu": "GB200-186GB", "gpus_per_node": 4})
    assert len(fabric.hops(64)) == 1
    assert len(fabric.hops(144)) == 2


@pytest.mark.parametrize(
    ("text", "framework", "precision"),
    [
        (None, "", MIXED),
        ("bf16", "Megatron-Core", MIXED),
        ("BF16", "", MIXED),
        ("bf16 + fp32 grad accumulation (ACCUMULATE_GRAD_IN_FP32=True)", "nanotron", MIXED),
        ("bf16 (fp32 grad acc BF16-optimizer)", "Megatron-DeepSpeed", MIXED),
        ("bf16", "InternEvo", replace(MIXED, gradients="bfloat16")),
        ("bf16-amp(fp32 master)", "torchtitan FSDP2", SHARDED),
        ("bf16-amp(fp32 master)", "", SHARDED),
        ("bf16", "NeMo AutoModel (PyTorch FSDP2 + TE/DeepEP)", SHARDED),
        ("bf16-pure", "Composer/PyTorch FSDP1", PURE_BF16),
        ("bf16-true", "LitGPT", PURE_BF16),
        ("fp8-tensorwise (fp8 all-gather)", "torchtitan FSDP2", replace(SHARDED, compute="float8")),
        ("MXFP8", "Megatron-Core", replace(MIXED, compute="float8")),
        ("NVFP4", "Megatron-Core", replace(MIXED, compute="float4")),
        ("fp16", "Megatron-LM", FP16),
        ("fp16", "Megatron-DeepSpeed", FP16),
        ("fp32", "", replace(FLOAT32, cache="bfloat16")),
        ("32-true", "LitGPT", replace(FLOAT32, cache="bfloat16")),
        ("tf32", "", replace(FLOAT32, compute="tfloat32", cache="bfloat16")),
        ("bf16-mixed", "Lightning", SHARDED),
        (
            "16-true",
            "LitGPT",
            Precision("float16", "float16", "float16", False, "float16", activations="float16"),
        ),
        ("bf16-true, nf4", "LitGPT", replace(MIXED, weights="int4")),
        ("int8", "", replace(MIXED, weights="float8")),
    ],
)
def test_dtypes(text: str | None, framework: str, precision: Precision) -> None:
    assert naming.precision_of(text, framework) == precision


@pytest.mark.parametrize(
    ("words", "usual"),
    [("float8", "fp8"), ("float8_rowwise", "fp8"), ("E4M3", "fp8"), ("half", "fp16"), ("float4", "nvfp4")],
)
def test_other_spellings_of_dtypes(words: str, usual: str) -> None:
    assert naming.precision_of(words) == naming.precision_of(usual)


@pytest.mark.parametrize("words", ["weird", "posits", "O1"])
def test_a_precision_that_names_no_dtype_is_refused(words: str) -> None:
    with pytest.raises(InputError, match=words):
        naming.precision_of(words)


@pytest.mark.parametrize("words", ["not stated", "bf16-mixed", "TF32", "32-true", "recipe default", " "])
def test_words_that_name_one_or_leave_it_open_are_read(words: str) -> None:
    naming.precision_of(words)
