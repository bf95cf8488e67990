"""`RlStep`: one RL step as published rows describe it, and its cost composed of stage costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture, Head
from rpeg.cluster import DeviceKind, Fabric
from rpeg.cost import BYTES_OF, Cost, Execution, Machine, Sequences, parallel, sequence, stack
from rpeg.cost.generating import Policy, generate_stage, with_logprobs
from rpeg.cost.network import Held, copied, named_tensors, sync, transfer
from rpeg.cost.training import infer_stage, train_stage
from rpeg.workload.lengths import lognormal

Ints = npt.NDArray[np.int64]

# Draws of lengths that a cost is integrated over: seeded, so that a row always has the same prediction.
_SEED = 0

# Of the eight tensor-parallel collectives of a layer, two scatters, those of backward, run behind products of weight
# gradients where nothing is done about it (Megatron-Core, tensor_parallel/layers.py); none of a forward alone does.
_TRAINING_OVERLAP, _SCORING_OVERLAP = 0.25, 0.0
# vLLM runs up to 1,024 sequences at once on devices of 70 GiB and more but A100 (vllm/engine/arg_utils.py).
_LARGE_BYTES, _LARGE_ROWS = 70 * 2**30, 1024


@dataclass(frozen=True)
class RlStep:
    """What one step does.

    generated, trained: samples. group: samples of one prompt. prompt, response: mean tokens; longest: of a response.
    updates: optimizer steps. scorings: forwards over the trained samples for log-probabilities, one a model.
    staleness: 0 runs generation and training in turn; k lets the prompts of k batches be in flight meanwhile, each of
    which makes room for another when its whole group is done (NVIDIA-NeMo/RL, nemo_rl/algorithms/async_utils).
    generators: devices that only generate; 0: all devices do everything in turn. offloaded: the optimizer rests in
    host memory while others run. memory_share: of the card that the engine may take; None: its default.
    critic: a value model of the same shape is scored and trained too.
    padded: micro-batches are as long as the longest of all, where pipelines hand them on or nothing is packed
    (NVIDIA-NeMo/RL v0.5.0, nemo_rl/models/megatron/common.py: _get_pack_sequence_parameters_for_megatron).
    """

    architecture: Architecture
    kind: DeviceKind
    fabric: Fabric
    devices: int
    generated: int
    trained: int
    group: int
    prompt: float
    response: float
    longest: int
    updates: int
    scorings: int
    generate: Execution
    train: Execution
    score: Execution
    serving: str
    training: str
    staleness: int = 0
    generators: int = 0
    offloaded: bool = True
    memory_share: float | None = None
    critic: bool = False
    padded: bool = False

    def machine(self, software: str) -> Machine:
        """The devices under a stack."""
        return Machine(self.kind, self.fabric, stack(software, self.kind.name))

    def trainer(self, overlap: float) -> Machine:
        """The devices under the training stack, kernels launched one by one; overlap: of tensor parallelism.

        Frameworks for RL set neither graphs of layers nor user buffers of TransformerEngine, which recipes for
        pre-training do (NVIDIA-NeMo/RL v0.6.0, nemo_rl/models/megatron/setup.py; verl, its Megatron engine).
        """
        machine = self.machine(self.training)
        traits = machine.stack.training
        launched = stack(self.training).training.host_seconds_per_expert_layer
        overlap = min(overlap, traits.tensor_overlap)
        traits = replace(traits, host_seconds_per_expert_layer=launched, tensor_overlap=overlap)
        return replace(machine, stack=replace(machine.stack, training=traits))

    @property
    def engine(self) -> Machine:
        """The devices under the engine, which hands out a log-probability with each token."""
        return with_logprobs(self.machine(self.serving))

    @property
    def rows(self) -> int | None:
        """Sequences that a replica runs at once at most, where its engine does not keep to the stack's default."""
        large = self.kind.memory_bytes >= _LARGE_BYTES and not self.kind.name.startswith("a100")
        return _LARGE_ROWS if large and self.serving == "vllm" else None


def step_cost(step: RlStep) -> Cost:
    """The whole step: parts in turn, or the slower of two sides that work at the same time."""
    scoring, training, moving = _scoring(step), _training(step), _refit(step)
    if step.generators == 0:
        return sequence("step", [*moving, _generation(step, 1), *scoring, *training])
    batches = max(1, step.staleness)
    side = _generation(step, batches).scaled(1 / batches)
    return parallel(
        "step",
        [sequence("generators", [side, *moving]), sequence("trainers", [*scoring, *training, *moving])],
    )


def training_cost(step: RlStep) -> Cost:
    """Updates alone."""
    return sequence("training", _training(step))


def drawn(step: RlStep, count: int) -> tuple[Ints, Ints]:
    """Lengths of the prompts and responses of `count` samples."""
    prompts = np.full(count, max(1, round(step.prompt)), np.int64)
    if step.response >= step.longest:
        return prompts, np.full(count, step.longest, np.int64)
    tail = lognormal(step.response, step.longest)
    return prompts, tail.quantiles(np.random.default_rng(_SEED).permutation((np.arange(count) + 0.5) / count))


def _generation(step: RlStep, batches: int) -> Cost:
    prompts, responses = drawn(step, step.generated * batches)
    run = generate_stage(
        step.architecture,
        prompts,
        responses,
        step.generate,
        step.engine,
        samples_per_prompt=step.group,
        policy=Policy(max_rows=step.rows, overlapped=False, memory_share=step.memory_share),
    )
    return run.cost


def _batch(step: RlStep, execution: Execution, updates: int) -> tuple[Sequences, Execution]:
    """The trained samples, and an execution whose token budget is what bins of whole sequences really hold."""
    prompts, responses = drawn(step, step.trained)
    sequences = Sequences.of(prompts, responses)
    sequences = replace(sequences, scored=sequences.tokens)  # every token passes the head
    if not execution.token_budget:
        return (Sequences.equal(sequences.count, sequences.longest) if step.padded else sequences), execution
    share = max(1, step.trained // (execution.parallelism.dp * updates))
    lengths = (prompts + responses)[:share]
    held = filled(lengths, execution.token_budget)
    full = -(-sum(held) // len(held))
    if step.padded and execution.parallelism.pp > 1:
        fuller = max(held) / (sum(held) / len(held))
        full, tokens = max(held), round(sequences.tokens * fuller)
        sequences = replace(sequences, tokens=tokens, scored=tokens)
    return replace(sequences, longest=min(sequences.longest, full)), replace(execution, token_budget=full)


def filled(lengths: Ints, size: int) -> list[int]:
    """Tokens in each of the bins of `size` tokens that hold sequences of these lengths, first fit in falling order."""
    held: list[int] = []
    for length in sorted((int(n) for n in lengths), reverse=True):
        for index, tokens in enumerate(held):
            if tokens + length <= size:
                held[index] += length
                break
        else:
            held.append(length)
    return held


def _scoring(step: RlStep) -> list[Cost]:
    machine = step.trainer(_SCORING_OVERLAP)
    sequences, execution = _batch(step, step.score, 1)
    out = [_turn(machine)]
    if step.scorings:
        one = infer_stage(step.architecture, sequences, execution, machine)
        out.append(replace(one.scaled(step.scorings), name="log-probabilities", count=step.scorings))
    if step.scorings > 1:
        out.append(copied(3 * _weights(step), machine, "swap in the reference"))
    if step.critic:
        values = infer_stage(step.architecture, sequences, execution, machine, heads=("value",))
        out.append(replace(values, name="values"))
    return out


def _training(step: RlStep) -> list[Cost]:
    machine = step.trainer(_TRAINING_OVERLAP)
    sequences, execution = _batch(step, step.train, step.updates)
    heads: list[tuple[str, tuple[Head, ...]]] = [("train", ("lm",))]
    if step.critic:
        heads.append(("train (critic)", ("value",)))
    costs = [
        train_stage(step.architecture, sequences, execution, machine, updates=step.updates, heads=head)
        for _, head in heads
    ]
    return [_turn(machine), *(replace(cost, name=name) for (name, _), cost in zip(heads, costs, strict=True))]


def _turn(machine: Machine) -> Cost:
    return Cost("turn", machine.stack.network.turn_seconds, bound="host")


def _refit(step: RlStep) -> list[Cost]:
    """New weights into the engine, and what makes room for it where both share the devices."""
    machine = step.machine(step.serving)
    apart = step.generators > 0
    trainers = step.train.parallelism.devices
    plan = transfer(
        step.architecture,
        Held(step.train.parallelism, 0, step.train.precision.weights),
        Held(step.generate.parallelism, trainers if apart else 0, step.generate.precision.weights),
        step.fabric,
    )
    tensors = named_tensors(step.architecture)
    # NVIDIA-NeMo/RL pull request 1379 (v0.4.0): buckets are gathered while others are broadcast
    moved = sync(plan, machine, "broadcast" if apart else "ipc", tensors=tensors, overlapped=apart)
    if apart or not step.offloaded:
        return [moved]
    wake = Cost("wake", machine.stack.network.wake_seconds, bound="host")
    optimizer = step.architecture.parameters() * (4.0 + 2 * BYTES_OF[step.train.precision.moments]) / trainers
    away = copied(2 * (_weights(step) + optimizer), machine, "weights and optimizer to the host and back")
    return [moved, wake, away]


def _weights(step: RlStep) -> float:
    """Bytes of a trainer's own shard of the weights."""
    held = Held(step.train.parallelism, 0, step.train.precision.weights)
    return transfer(step.architecture, held, held, step.fabric).receive_needed_bytes
