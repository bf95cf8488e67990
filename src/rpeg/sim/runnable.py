"""What RPEG's own backends can run, said before anything starts: as far as a plan tells, and as far as its models do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rpeg.architecture import Architecture
from rpeg.errors import InputError, PlanError
from rpeg.ir import Kind, Stage
from rpeg.plan import Assignment, Devices, Parallelism, Plan

TENSORS = frozenset(
    ("gemma", "gemma2", "gemma3_text", "granite", "llama", "mistral", "nemotron", "qwen2", "qwen3", "smollm3")
)
"""Families (`model_type`) whose Hugging Face configuration declares a cut by columns and rows (`base_model_tp_plan`)."""

LAYERS = TENSORS | {"mixtral", "olmo2", "phi3", "qwen2_moe", "qwen3_moe", "stablelm"}
"""Families whose layers can be dealt to stages and whose attention lets heads be exchanged."""

PACKED = frozenset(("bloom", "falcon", "gpt2", "gpt_neox", "mpt", "phi3"))
"""Families that have queries, keys and values in one matrix."""

CONVOLVED = frozenset(("gpt2",))
"""Families whose matrices are no linear modules."""


def check_adapters(targets: str, architectures: Iterable[Architecture]) -> None:
    """Raises InputError naming a model that has no matrices to put adapters beside. targets: as in a job's `lora`."""
    for model in architectures:
        if model.family in CONVOLVED or (targets == "attention" and model.family in PACKED):
            way = "train it without lora" if model.family in CONVOLVED else "use targets: all"
            raise InputError(
                f"lora.targets {targets}: {model.name} is a {model.family}, whose matrices are no modules of "
                f"their own; {way}"
            )


def check_runnable(plan: Plan, architectures: Mapping[str, Architecture]) -> None:
    """Raises PlanError naming every stage whose assignment asks for what no backend does.

    architectures: of the plan's models, by name.
    """
    found = [*_violations(plan), *_model_violations(plan, architectures)]
    if found:
        raise PlanError(
            "no backend here can run this plan:" + "".join(f"\n  {sentence}" for sentence in found)
        )


def _violations(plan: Plan) -> Iterator[str]:
    for stage in plan.graph.stages:
        a = plan.assignment(stage.name)
        yield from _structure(stage)
        if stage.kind is Kind.UPDATE:
            yield f"stage {stage.name} is an update of weights outside training; only training updates weights"
        if isinstance(a.block, Devices):
            yield from _layout(plan, stage, a)


def _layout(plan: Plan, stage: Stage, a: Assignment) -> Iterator[str]:
    p = a.parallelism
    if stage.kind is Kind.GENERATE or _rewards(plan, stage):
        holder = "generation" if stage.kind is Kind.GENERATE else "a reward model"
        cut = [f"{degree} {getattr(p, degree)}" for degree in ("pp", "cp", "ep") if getattr(p, degree) > 1]
        if cut:
            yield f"stage {stage.name} has {', '.join(cut)}; {holder} is cut by tp alone here: use dp or tp"
    assert isinstance(a.block, Devices)
    ascending = tuple(sorted(a.block.ids))
    if (_cuts(p) or p.shard) and a.block.ids != ascending:  # process groups number their ranks so
        yield f"stage {stage.name} is cut over devices {a.block.ids}; name them in ascending order: {ascending}"
    if p.vpp > 1 and (p.pp == 1 or p.zero > 1):
        yield (
            f"stage {stage.name} has vpp {p.vpp} with pp {p.pp} and zero {p.zero}; chunks are of a pipeline of 2 or more "
            "stages, whose gradients are whole: use zero 0 or 1, or vpp 1"
        )
    if p.ep > 1 and (p.tp > 1 or p.zero):
        yield f"stage {stage.name} has ep {p.ep} with tp {p.tp} and zero {p.zero}; with experts apart use tp 1 and zero 0"
    if p.ep > p.dp * p.cp or p.dp * p.cp % p.ep:
        yield f"stage {stage.name} has ep {p.ep}, which does not divide dp {p.dp} × cp {p.cp}"


def _rewards(plan: Plan, stage: Stage) -> bool:
    return any(plan.graph.model(model).heads == ("reward",) for model in stage.models)


def _cuts(p: Parallelism) -> bool:
    return max(p.tp, p.pp, p.cp, p.ep) > 1


def _structure(stage: Stage) -> Iterator[str]:
    """What transforms made of a stage that workers do not know how to run."""
    beyond = stage.gives - {"old_logprobs"}
    if stage.kind is Kind.TRAIN and beyond:
        given = ", ".join(sorted(beyond))
        yield f"stage {stage.name} gives {given} itself; use a plan that does not prune what gave it"


def _model_violations(plan: Plan, architectures: Mapping[str, Architecture]) -> Iterator[str]:
    for stage in plan.graph.stages:
        p = plan.assignment(stage.name).parallelism
        for model in stage.models if _cuts(p) else ():
            for rule in (_tensors, _stages, _contexts, _experts):
                yield from (f"stage {stage.name}: {text}" for text in rule(architectures[model], p))


def _tensors(model: Architecture, p: Parallelism) -> Iterator[str]:
    if p.tp == 1:
        return
    if model.family not in TENSORS:
        yield f"{model.name} is a {model.family}, which tp does not cut here; use dp, with zero 3"
        return
    if model.output_bias or model.ffn_bias:
        yield f"{model.name} has biases after its matrices, which tp {p.tp} would add {p.tp} times; use dp, with zero 3"
    sizes = {
        "heads": model.heads,
        "key and value heads": model.kv_heads,
        "units of the feed-forward": model.ffn,
    }
    for what, size in sizes.items():
        if size % p.tp:
            yield f"tp {p.tp} does not divide the {size} {what} of {model.name}; tp {_near(p.tp, size)} would"


def _stages(model: Architecture, p: Parallelism) -> Iterator[str]:
    if p.pp == 1:
        return
    if model.family not in LAYERS:
        yield f"{model.name} is a {model.family}, whose layers pp does not deal here; use dp, with zero 3"
    if p.pp * p.vpp > model.layers:
        many = f"pp {p.pp}" if p.vpp == 1 else f"pp {p.pp} × vpp {p.vpp}"
        yield f"{many} is more than the {model.layers} layers of {model.name}; use pp {model.layers} or less"


def _contexts(model: Architecture, p: Parallelism) -> Iterator[str]:
    if p.cp == 1:
        return
    if model.family not in LAYERS:
        yield f"{model.name} is a {model.family}, whose heads cp does not exchange here; use dp"
    if model.window:
        yield f"{model.name} attends within a window of {model.window}, which cp {p.cp} here does not; use dp or tp"
    if model.kv_heads % (p.cp * p.tp):
        yield (
            f"cp {p.cp} with tp {p.tp} does not divide the {model.kv_heads} key and value heads of {model.name}; "
            f"cp {_near(p.cp, max(1, model.kv_heads // p.tp))} would"
        )


def _experts(model: Architecture, p: Parallelism) -> Iterator[str]:
    if p.ep == 1:
        return
    if model.experts is None:
        yield f"{model.name} has no experts to deal to ep {p.ep}; use dp"
    elif model.experts.count % p.ep:
        count = model.experts.count
        yield f"ep {p.ep} does not divide the {count} experts of {model.name}; ep {_near(p.ep, count)} would"


def _near(degree: int, size: int) -> str:
    """The nearest degrees that divide a size."""
    legal = [n for n in range(1, size + 1) if size % n == 0]
    return " or ".join(
        map(str, [*[n for n in legal if n < degree][-1:], *[n for n in legal if n > degree][:1]])
    )
