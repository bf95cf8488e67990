"""Records of `real`: PPO iterations of systems whose plan is known, composed of stage costs.

A plan gives each call its layout. Where all calls share one mesh they run one after another: generation, inference of
reward, reference and critic, updates of actor and critic. What is not printed in a row is what the system does by
default (openpsi-project/ReaLHF, realhf/impl/model/backend/pipe_runner.py): pp micro-batches where it generates and
scores, 2 pp where it trains; without a pipeline the whole minibatch is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpeg.architecture import Architecture, Head
from rpeg.cost import Cost, Execution, Machine, Precision, Sequences, sequence, stack
from rpeg.cost.generating import Policy, generate_stage
from rpeg.cost.network import offload
from rpeg.cost.precision import BYTES_OF
from rpeg.cost.training import infer_stage, train_stage
from rpeg.errors import InputError, nearest
from rpeg.plan import Parallelism
from rpeg.validation.naming import architecture_of, fabric_of, kind_of
from rpeg.validation.outcome import Outcome
from rpeg.validation.real_kernels import unfused

Record = Mapping[str, Any]

# Shapes of LLaMA-2 (arXiv:2307.09288, its config.json files) and of CodeLlama 34B, by billions of parameters.
_SHAPES: dict[int, dict[str, int]] = {
    7: {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008, "vocab": 32000},
    13: {"layers": 40, "hidden": 5120, "heads": 40, "kv_heads": 40, "ffn": 13824, "vocab": 32000},
    34: {"layers": 48, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 22016, "vocab": 32000},
    70: {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 32000},
}
_CALLS = ("actor_gen", "rew_inf", "ref_inf", "critic_inf", "actor_train", "critic_train")
_SCORINGS: tuple[tuple[str, str, Head], ...] = (
    ("rew_inf", "reward", "reward"),
    ("ref_inf", "ref", "lm"),
    ("critic_inf", "critic", "value"),
)

# Megatron's tensor-parallel layers, launched kernel by kernel, with FlashAttention in training and scoring
# (openpsi-project/ReaLHF, realhf/impl/model/parallelism/model_parallel, realhf/impl/model/modules/attn.py).
_STACK, _ATTENTION = "eager", "flash"
_HALF = Precision("float16", "float16", "float16", cache="float16", activations="float16")


@dataclass(frozen=True)
class Iteration:
    """One PPO iteration as a row describes it. models: billions of parameters by role."""

    models: Mapping[str, int]
    layouts: Mapping[str, Parallelism]
    samples: int
    prompt: int
    response: int
    minibatches: int
    graphs: bool
    offloaded: bool
    gpu: str
    devices: int
    devices_per_node: int

    def architecture(self, role: str) -> Architecture:
        """Of a role's model. InputError for a size that the family does not have."""
        size = self.models[role]
        if size not in _SHAPES:
            raise InputError(f"LLaMA-2 has no {size}B model. {nearest(str(size), map(str, _SHAPES))}")
        return architecture_of({"name": f"llama-2-{size}b", **_SHAPES[size], "gated_mlp": True})

    def machine(self, fused: bool) -> Machine:
        """The devices of the iteration; fused: attention runs as one kernel."""
        kind = kind_of(self.gpu)
        row = {"gpu": self.gpu, "gpus_per_node": self.devices_per_node, "n_gpus": self.devices}
        software = stack(_STACK, kind.name)
        if fused:
            software = replace(software, kernels=stack(_ATTENTION, kind.name).kernels)
        return Machine(kind, fabric_of(row), software)


def predict(record: Record) -> Outcome:
    """The outcome of one row; what it describes and cannot be expressed is named in the outcome's reason."""
    setting = record.get("setting") or {}
    measured = _measured(record)
    outcome = Outcome(
        str(record.get("id", "")), str(record.get("source", "")), "real", _words(setting), measured
    )
    if measured is None:
        return replace(outcome, reason=_no_time(record))
    try:
        cost = iteration(described(record))
    except InputError as error:
        return replace(outcome, reason=str(error))
    return replace(outcome, predicted=cost.seconds, cost=cost)


def described(record: Record) -> Iteration:
    """What a row says of its iteration. InputError names what it leaves out.

    Pipelines generate pp − 1 tokens beyond the limit, and all later calls read them (ReaL at c3889be8,
    impl/model/backend/pipe_engine/ds_pipe_engine.py: generate raises max_new_tokens by as many).
    """
    setting, plan = record.get("setting") or {}, record.get("plan") or {}
    calls = plan.get("calls")
    if not calls:
        known = plan.get("kind") or "neither layouts nor micro-batches are published"
        raise InputError(f"the plan of {setting.get('system', 'the system')} is unknown: {known}")
    if plan.get("param_realloc"):
        raise InputError(
            "calls on different meshes: lengths of the prompts are not given (only their maximum)"
        )
    return Iteration(
        models={role: int(_given(setting, f"{role}_b")) for role in ("actor", "ref", "critic", "reward")},
        layouts={call: _layout(calls[call], plan) for call in _CALLS},
        samples=int(_given(setting, "batch_size")),
        prompt=int(_given(setting, "prompt_len")),
        response=int(_given(setting, "gen_len")) + int(calls["actor_gen"]["pp"]) - 1,
        minibatches=int(_given(setting, "ppo_minibatches")),
        graphs=bool(setting.get("cuda_graph_generation")),
        offloaded="offload" in str(plan.get("ref_and_reward", "")),
        gpu=str(_given(setting, "gpu")),
        devices=int(_given(setting, "n_gpus")),
        devices_per_node=int(setting.get("gpus_per_node") or 8),
    )


def iteration(it: Iteration) -> Cost:
    """The calls of an iteration one after another on all devices."""
    parts = [_generation(it)]
    for call, role, head in _SCORINGS:
        parts.append(_inference(it, call, role, head))
    parts += [_training(it, "actor_train", "actor", "lm"), _training(it, "critic_train", "critic", "value")]
    parts.append(Cost("cleared cache", it.machine(fused=True).stack.network.turn_seconds, bound="host"))
    return sequence("iteration", parts)


def _generation(it: Iteration) -> Cost:
    execution = Execution(replace(it.layouts["actor_gen"], sequence_parallel=False), _HALF, graphs=it.graphs)
    lengths = np.full(it.samples, it.prompt), np.full(it.samples, it.response)
    policy = Policy("static", max_rows=it.samples, share_prefixes=False, overlapped=False)
    machine, policy = (
        it.machine(fused=False),
        Policy("static", max_rows=it.samples, share_prefixes=False, overlapped=False),
    )
    run = generate_stage(it.architecture("actor"), *lengths, execution, machine, policy=policy)
    return sequence("generate (actor)", [*run.cost.children, _around_layers(it, machine)])


def _around_layers(it: Iteration, machine: Machine) -> Cost:
    """What a stage launches for a token beside its layers, as many kernels as a layer has.

    It receives, embeds or projects and samples, and sends; each stage does so for each of pp micro-batches.
    """
    passes = it.layouts["actor_gen"].pp * it.response
    return Cost(
        "host around layers", passes * machine.stack.serving.launch_seconds, bound="host", count=passes
    )


def _inference(it: Iteration, call: str, role: str, head: Head) -> Cost:
    layout = it.layouts[call]
    execution = Execution(layout, _HALF, microbatch=_microbatch(it.samples, layout, layout.pp))
    tokens = Sequences.equal(it.samples, it.prompt + it.response)
    machine = unfused(
        it.machine(fused=True), it.architecture(role), layout.tp, execution.microbatch, training=False
    )
    cost = infer_stage(it.architecture(role), tokens, execution, machine, heads=(head,))
    if not it.offloaded or role == "critic":
        return replace(cost, name=f"inference ({role})")
    share = it.architecture(role).parameters(head) * BYTES_OF[_HALF.weights] / layout.devices_per_replica
    moved = [offload(share, machine, "reload"), cost, offload(share, machine, "offload")]
    return sequence(f"inference ({role})", moved)


def _training(it: Iteration, call: str, role: str, head: Head) -> Cost:
    layout, samples = it.layouts[call], it.samples // it.minibatches
    parts = 2 * layout.pp if layout.pp > 1 else 1
    execution = Execution(layout, _HALF, microbatch=_microbatch(samples, layout, parts), recompute="full")
    tokens = Sequences.equal(it.samples, it.prompt + it.response)
    machine = unfused(
        it.machine(fused=True), it.architecture(role), layout.tp, execution.microbatch, training=True
    )
    cost = train_stage(
        it.architecture(role), tokens, execution, machine, updates=it.minibatches, heads=(head,)
    )
    return replace(cost, name=f"train ({role})")


def _microbatch(samples: int, layout: Parallelism, parts: int) -> int:
    return max(1, samples // (layout.dp * parts))


def _layout(call: Record, plan: Record) -> Parallelism:
    tp = int(call["tp"])
    sequence_parallel = bool(plan.get("sequence_parallel")) and tp > 1
    return Parallelism(
        dp=int(call["dp"]), tp=tp, pp=int(call["pp"]), zero=1, sequence_parallel=sequence_parallel
    )


def _given(setting: Record, key: str) -> Any:
    if setting.get(key) is None:
        raise InputError(f"'{key}' is not given")
    return setting[key]


def _measured(record: Record) -> float | None:
    value = (record.get("measured") or {}).get("iter_time_s")
    return float(value) if isinstance(value, int | float) else None


def _no_time(record: Record) -> str:
    if (record.get("measured") or {}).get("failed"):
        return "the run failed (out of memory)"
    return f"'{record.get('kind')}': no time of an iteration is given"


def _words(setting: Record) -> str:
    sizes = "/".join(str(setting.get(f"{role}_b", "?")) for role in ("actor", "critic", "ref", "reward"))
    return (
        f"{setting.get('system', '?')} {sizes}B on {setting.get('n_gpus', '?')} GPUs, "
        f"{setting.get('batch_size', '?')} × ({setting.get('prompt_len', '?')} + {setting.get('gen_len', '?')})"
    )
