"""Published rows of RL steps as `RlStep`: tables of NeMo RL, with a recipe or without, and logs of verl."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rpeg.architecture import Architecture
from rpeg.cost import Cost, Execution, Machine, Precision, stack
from rpeg.cost.network import Held, named_tensors, sync, transfer
from rpeg.errors import InputError
from rpeg.plan import Parallelism
from rpeg.validation.naming import architecture_of, fabric_of, kind_of, serving_stack_of, training_stack_of
from rpeg.validation.rl_step import RlStep

Record = Mapping[str, Any]

# Tokens of a prompt, which no row gives: OpenMathInstruct-2 with a chat template.
_PROMPT = 110

# Samples that a recipe with dynamic sampling generates for each that it trains: the loader draws three times the prompts,
# and those whose answers all earn the same are left out (NVIDIA-NeMo/RL v0.5.0, examples/configs/recipes/llm/performance/
# dapo-deepseek-v3-64n8g.yaml: batch_multiplier, use_dynamic_sampling). The table's batch of 512 is its optimizer's.
_DRAWN = 3

# Recipes that are not printed recompute activations where the model has more parameters than this; of the recipes that
# are, all of 235B and more do and all of 30B do not (NVIDIA-NeMo/RL, examples/configs/recipes/llm/performance).
_RECOMPUTED_FROM = 1e11


def flattened(record: Record) -> dict[str, Any]:
    """The fields of a record, of its setting and of its recipe on one level; the recipe says it last."""
    setting = record.get("setting") or {}
    return {
        **record,
        **setting,
        **(setting.get("recipe_resolved") or {}),
        "has_recipe": "recipe_resolved" in setting,
    }


def table_row(record: Record) -> RlStep:
    """A row of a table of steps. InputError names the field that it lacks."""
    flat = flattened(record)
    kind = kind_of(str(_given(flat, "gpu")))
    response = float(_given(flat, "avg_seq_len"))
    architecture = _architecture(flat)
    layout = _trained(flat)
    devices, apart = _count(flat, "gpus", "n_gpus"), _generators(flat)
    width = _count(flat, "max_total_sequence_length", "max_seq_len")
    group = int(flat.get("num_generations_per_prompt") or 1)
    asked = int(flat.get("num_prompts_per_step") or 0) * group
    dynamic = bool(asked) and str(flat.get("algorithm", "")).upper() == "DAPO"
    trained = asked if dynamic else _count(flat, "samples_per_step", "gen_batch")
    batch = _count(flat, "train_global_batch_size", "train_gbs", "train_batch")
    fp8 = "fp8" in f"{flat.get('train_precision')} {flat.get('precision')}".lower()
    return RlStep(
        architecture=architecture,
        kind=kind,
        fabric=fabric_of({**flat, "n_gpus": devices}),
        devices=devices,
        generated=_DRAWN * asked if dynamic else max(trained, asked),
        trained=trained,
        group=group,
        prompt=_PROMPT,
        response=min(response, width - _PROMPT),
        longest=max(1, width - _PROMPT),
        updates=max(1, trained // batch),
        scorings=2 if float(flat.get("kl_penalty", 0.01)) > 0 else 1,
        generate=_generated(flat, apart or devices),
        train=_execution(flat, architecture, layout, devices - apart, width, _microbatch(flat, "train"), fp8),
        score=_execution(
            flat, architecture, layout, devices - apart, width, _microbatch(flat, "logprob"), fp8
        ),
        serving=serving_stack_of(str(flat.get("rollout_backend") or flat.get("framework"))),
        training=training_stack_of(str(flat.get("train_backend") or flat.get("framework"))),
        staleness=_staleness(flat),
        generators=apart,
        memory_share=flat.get("gen_gpu_mem_util"),
        padded=True,
    )


@dataclass(frozen=True)
class Logged:
    """A log of verl: what `table_row` finds under other names."""

    record: Record

    def step(self) -> RlStep:
        """InputError names what the log lacks."""
        row = self.record
        batch, lengths = row.get("batch") or {}, row.get("lengths") or {}
        prompt = _first(lengths, "mean_prompt", "prompt_length/mean")
        response = _first(lengths, "mean_response", "response_length/mean")
        if prompt is None or response is None:
            raise InputError("the mean length of responses is not given")
        devices = _count(row, "n_gpus")
        prompts, group = _count(batch, "train_batch_size"), int(batch.get("rollout_n") or 1)
        architecture = architecture_of({"name": re.sub(r"\s*\(.*", "", str(_given(row, "model")))})
        engine = str(_given(row, "train_engine"))
        offloaded = "offload" in engine
        layout = _engine_layout(engine, devices)
        train = Execution(
            layout,
            token_budget=_tokens_a_device(row, prompt + response),
            recompute="full" if "grad ckpt" in engine and "no grad ckpt" not in engine else "none",
            offload="all" if offloaded else "none",
            lora_rank=_lora(str(row.get("algorithm"))),
        )
        tp = int(
            row.get("rollout_tp") or (re.search(r"TP(\d+)", str(row.get("rollout_engine"))) or [0, 1])[1]
        )
        words = str(row.get("rollout_engine"))
        return RlStep(
            architecture=architecture,
            kind=kind_of(str(row.get("gpu"))),
            fabric=fabric_of({"gpu": row.get("gpu"), "n_gpus": devices}),
            devices=devices,
            generated=prompts * group,
            trained=prompts * group,
            group=group,
            prompt=float(prompt),
            response=float(response),
            longest=int(
                _first(lengths, "max_seen_response", "max_response", "response_length/max") or 4 * response
            ),
            updates=max(1, prompts // int(batch.get("ppo_mini_batch_size") or prompts)),
            scorings=2 if "KL" in str(row.get("algorithm")) else 1,
            generate=Execution(
                Parallelism(dp=max(1, devices // tp), tp=tp), graphs="enforce_eager" not in words
            ),
            train=train,
            score=replace(train, recompute="none"),
            serving=serving_stack_of(words),
            training=training_stack_of(engine),
            offloaded=offloaded,
            memory_share=row.get("gpu_memory_utilization"),
            critic="PPO" in str(row.get("algorithm")),
        )


def weights_cost(flat: Record) -> Cost:
    """The transfer of new weights from trainers to generators alone, where a row gives both layouts."""
    kind, architecture = kind_of(str(_given(flat, "gpu"))), _architecture(flat)
    trainers, generators = _count(flat, "train_gpus"), _count(flat, "gen_gpus")
    tp, pp = _count(flat, "tensor_parallelism"), _count(flat, "pipeline_parallelism")
    gen_tp = _count(flat, "generation_tensor_parallelism")
    train = Parallelism(trainers // (tp * pp), tp, pp, ep=_count(flat, "expert_parallelism"), zero=1)
    serve = Parallelism(generators // gen_tp, gen_tp, ep=_count(flat, "generation_expert_parallelism"))
    fabric = fabric_of({**flat, "n_gpus": trainers + generators})
    engine = serving_stack_of(str(flat.get("generation_backend")))
    plan = transfer(architecture, Held(train), Held(serve, trainers), fabric)
    machine = Machine(kind, fabric, stack(engine, kind.name))
    return sync(plan, machine, "broadcast", tensors=named_tensors(architecture))


def _architecture(flat: Record) -> Architecture:
    model = flat.get("model")
    if isinstance(model, Mapping):
        return architecture_of(model)
    return architecture_of({"name": str(model)})


def _trained(flat: Record) -> Parallelism:
    """Layout of training without its data-parallel degree."""
    train = flat.get("train") if isinstance(flat.get("train"), Mapping) else {}
    assert isinstance(train, Mapping)
    degree = {key: int(flat.get(f"train_{key}") or train.get(key) or 0) for key in ("tp", "pp", "cp", "ep")}
    if not degree["tp"]:
        raise InputError("the layout of training is not given")
    sequence_parallel = bool(flat.get("sequence_parallel", degree["tp"] > 1))
    return Parallelism(
        tp=degree["tp"],
        pp=degree["pp"] or 1,
        cp=degree["cp"] or 1,
        ep=degree["ep"] or 1,
        zero=1,
        sequence_parallel=sequence_parallel,
    )


def _execution(
    flat: Record,
    architecture: Architecture,
    layout: Parallelism,
    devices: int,
    width: int,
    microbatch: int,
    fp8: bool,
) -> Execution:
    replicas, rest = divmod(devices, layout.devices_per_replica)
    if rest or not replicas:
        raise InputError(
            f"{devices} devices are not whole replicas of {layout.devices_per_replica} (tp × pp × cp); "
            f"nearest: {max(1, replicas) * layout.devices_per_replica}"
        )
    recompute = flat.get("activation_checkpointing", architecture.parameters() > _RECOMPUTED_FROM)
    packed = bool(flat.get("sequence_packing", True))
    return Execution(
        replace(layout, dp=replicas),
        Precision(compute="float8") if fp8 else Precision(),
        microbatch=microbatch,
        token_budget=width * microbatch if packed else 0,
        recompute="full" if recompute else "none",
    )


def _microbatch(flat: Record, what: str) -> int:
    key = "train_micro_batch_size" if what == "train" else "logprob_batch_size"
    return int(flat.get(key) or 1)


def _generated(flat: Record, devices: int) -> Execution:
    gen = flat.get("gen") if isinstance(flat.get("gen"), Mapping) else {}
    assert isinstance(gen, Mapping)
    tp, pp = int(flat.get("gen_tp") or gen.get("tp") or 0), int(flat.get("gen_pp") or gen.get("pp") or 1)
    if not tp:
        raise InputError("the layout of generation is not given")
    words = f"{flat.get('gen_precision')} {flat.get('precision')}".lower()
    narrow = "fp8" in str(flat.get("gen_precision") or words).lower()
    # 8-bit rollouts have a scale for every block of 128 × 128 (NVIDIA-NeMo/RL v0.5.0, nemo_rl/models/generation/fp8.py)
    precision = Precision(compute="float8-block", weights="float8") if narrow else Precision()
    layout = Parallelism(dp=max(1, devices // (tp * pp)), tp=tp, pp=pp, ep=int(flat.get("gen_ep") or 1))
    return Execution(layout, precision, graphs=not flat.get("gen_enforce_eager"))


def _generators(flat: Record) -> int:
    """Devices that only generate; 0 where all do everything."""
    if _staleness(flat) == 0 and flat.get("placement") != "disaggregated":
        return 0
    nodes = flat.get("gen_num_nodes") or flat.get("gen_nodes")
    if not nodes:
        raise InputError("how many devices generate is not given")
    return int(nodes) * int(flat.get("gen_gpus_per_node") or flat.get("gpus_per_node") or 8)


def _staleness(flat: Record) -> int:
    """Batches in flight beyond the one that is trained."""
    if flat.get("staleness_bound_steps") is not None:
        return int(flat["staleness_bound_steps"])
    found = re.match(r"(\d+)-step off", str(flat.get("policy", "")).lower())
    return int(found[1]) if found else 0


def _engine_layout(engine: str, devices: int) -> Parallelism:
    found = {key: re.search(rf"{key}(\d+)", engine, re.IGNORECASE) for key in ("tp", "pp", "ep", "vpp")}
    if "megatron" in engine.lower():
        tp, pp, ep = (int(found[key][1]) if found[key] else 1 for key in ("tp", "pp", "ep"))  # type: ignore[index]
        return Parallelism(dp=devices // (tp * pp), tp=tp, pp=pp, ep=ep, zero=1, sequence_parallel=tp > 1)
    return Parallelism(dp=devices, zero=3)


def _tokens_a_device(row: Record, length: float) -> int:
    """Of a micro-batch, where the log says how many sequences it has; else verl's default, 16384 tokens."""
    found = re.search(r"micro (\d+)/gpu", str(row.get("train_engine")))
    micro = int(found[1]) if found else int((row.get("batch") or {}).get("micro") or 0)
    return round(micro * length) if micro else 16384


def _lora(algorithm: str) -> int | None:
    found = re.search(r"LoRA r(\d+)", algorithm)
    return int(found[1]) if found else None


def _first(fields: Record, *keys: str) -> Any:
    return next((fields[key] for key in keys if fields.get(key) is not None), None)


def _given(fields: Record, key: str) -> Any:
    if fields.get(key) is None:
        raise InputError(f"'{key}' is not given")
    return fields[key]


def _count(fields: Record, *keys: str) -> int:
    value = _first(fields, *keys)
    if value is None:
        raise InputError(f"'{keys[0]}' is not given")
    return int(value)
