"""What a plan must satisfy before anything runs.

Each rule yields one sentence a violation: the thing, both values, the way out. `check` raises PlanError with them all.
Whether a plan fits into memory is an estimate and lives above; what is here is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from rpeg.errors import PlanError, nearest
from rpeg.ir import Kind, Unit, verify
from rpeg.plan.assignment import Devices, Host
from rpeg.plan.item import Slot
from rpeg.plan.lowered import Lowered
from rpeg.plan.lowering import lower
from rpeg.plan.parts import stream_chunks
from rpeg.plan.plan import Plan
from rpeg.plan.resting import owners

StaticRule = Callable[[Plan], Iterator[str]]
OrderRule = Callable[[Plan, Lowered], Iterator[str]]

RECOMPUTE = ("none", "selective", "full")
OFFLOAD = ("none", "optimizer", "all")


def every_stage_is_assigned_once(plan: Plan) -> Iterator[str]:
    stages = [s.name for s in plan.graph.stages]
    assigned = Counter(a.stage for a in plan.assignments)
    yield from (f"stage {name} has no assignment" for name in stages if not assigned[name])
    yield from (f"stage {name} is assigned {n} times" for name, n in assigned.items() if n > 1)
    yield from (
        f"assignment of the unknown stage '{n}'. {nearest(n, stages)}" for n in assigned if n not in stages
    )


def blocks_exist(plan: Plan) -> Iterator[str]:
    for a in plan.assignments:
        if isinstance(a.block, Host):
            if not 0 <= a.block.node < len(plan.cluster.nodes):
                hosts = len(plan.cluster.nodes)
                yield f"stage {a.stage} runs on host {a.block.node}; the cluster has hosts 0 to {hosts - 1}"
            if a.block.slots < 1:
                yield f"stage {a.stage} has {a.block.slots} host slots; at least 1"
            continue
        if not a.block.ids:
            yield f"stage {a.stage} has an empty block; give it at least one device"
        if len(set(a.block.ids)) < len(a.block.ids):
            yield f"stage {a.stage} names a device twice: {a.block}"
        beyond = [i for i in a.block.ids if not 0 <= i < len(plan.cluster)]
        if beyond:
            yield f"stage {a.stage} uses device {beyond[0]}; the cluster has devices 0 to {len(plan.cluster) - 1}"


def kinds_fit_blocks(plan: Plan) -> Iterator[str]:
    for stage in plan.graph.stages:
        block = plan.assignment(stage.name).block
        if stage.kind is Kind.HOST and isinstance(block, Devices):
            yield f"stage {stage.name} is host work and is given {block}; give it a host"
        if stage.models and isinstance(block, Host):
            yield f"stage {stage.name} calls {stage.models[0]} and is given {block}; give it devices"


def parallelism_fits_blocks(plan: Plan) -> Iterator[str]:
    for a in plan.assignments:
        if isinstance(a.block, Devices) and a.parallelism.devices != len(a.block.ids):
            yield (
                f"stage {a.stage} has parallelism {a.parallelism} over {a.parallelism.devices} devices "
                f"and a block of {len(a.block.ids)}; the two must be equal"
            )
        if a.bundles < 0 or (a.bundles and a.parallelism.dp % a.bundles):
            yield (
                f"stage {a.stage} has dp {a.parallelism.dp} in {a.bundles} bundles, which are not equal; "
                f"{_nearest_divisors(a.parallelism.dp, a.bundles)} would be"
            )
        if a.microbatch < 1:
            yield f"stage {a.stage} has micro-batches of {a.microbatch}; at least 1"
        for name, value, known in (("recompute", a.recompute, RECOMPUTE), ("offload", a.offload, OFFLOAD)):
            if value not in known:
                yield f"stage {a.stage}: {name} '{value}' is unknown. {nearest(value, known)}"


def generators_hold_whole_models(plan: Plan) -> Iterator[str]:
    for stage in plan.graph.stages:
        p = plan.assignment(stage.name).parallelism
        if stage.kind is Kind.GENERATE and p.dp > 1 and p.zero == 3:
            yield f"stage {stage.name} has {p}: its replicas run apart, so each holds a whole model; give it zero 0"


def batches_divide(plan: Plan) -> Iterator[str]:
    w = plan.workload
    samples = w.prompts * w.samples_per_prompt
    if samples % w.minibatches:
        yield (
            f"{samples} samples a step ({w.prompts} prompts × {w.samples_per_prompt}) do not divide into {w.minibatches} "
            f"minibatches; {_nearest_divisors(samples, w.minibatches)} would"
        )
        return
    minibatch = samples // w.minibatches
    for stage in plan.graph.stages:
        a = plan.assignment(stage.name)
        if stage.kind is Kind.TRAIN and minibatch % a.parallelism.dp:
            yield (
                f"stage {stage.name}: minibatches of {minibatch} samples do not divide over dp {a.parallelism.dp}; "
                f"dp {_nearest_divisors(minibatch, a.parallelism.dp)} would"
            )
        prompts = w.round_prompts if stage.name in plan.graph.rounds else w.prompts
        if stage.kind is Kind.GENERATE and a.parallelism.dp > prompts:
            yield f"stage {stage.name} has dp {a.parallelism.dp} and {prompts} prompts; a replica would have none"


def parts_are_supported(plan: Plan) -> Iterator[str]:
    w = plan.workload
    for edge in plan.graph.edges:
        if edge.chunk is None:
            continue
        if edge.chunk.unit is Unit.MINIBATCH and w.epochs > 1:
            yield (
                f"edge {edge.name} brings minibatches as they are ready, and there are {w.epochs} epochs: "
                f"later ones go over the whole batch again; take 1 epoch, or the batch of a step at once"
            )
        if edge.chunk.unit is Unit.SAMPLE and edge.chunk.count > w.samples:
            yield f"edge {edge.name}: chunks of {edge.chunk.count} samples exceed the batch"
    for stage in plan.graph.stages:
        replicas = plan.assignment(stage.name).replicas(stage.kind) if stage.kind is Kind.GENERATE else 1
        if stage.parts > 1 and w.prompts // replicas < stage.parts:
            each = f" over {replicas} replicas" if replicas > 1 else ""
            yield (
                f"stage {stage.name} is split into {stage.parts} parts of whole groups and has {w.prompts} "
                f"prompts{each}; at most {w.prompts // replicas} parts"
            )


def migrated_responses_are_some_of_each_replica(plan: Plan) -> Iterator[str]:
    w = plan.workload
    for stage in plan.graph.stages:
        if not stage.migrates:
            continue
        replicas = plan.assignment(stage.name).replicas(stage.kind)
        least = w.prompts // replicas * w.samples_per_prompt
        group = any(c.unit is Unit.GROUP for c in stream_chunks(plan.graph, stage.name))
        unit = w.samples_per_prompt if group else 1
        where = f"stage {stage.name} migrates {stage.migrates} responses"
        if replicas == 1:
            yield f"{where} and has one replica; nothing would move: use dp 2 or more, or leave it out"
        elif stage.migrates % (replicas * unit):
            each = f"{replicas} replicas" + (f" × groups of {unit}" if group else "")
            yield f"{where}, which do not divide over {each}; a multiple of {replicas * unit} would"
        elif stage.migrates // replicas >= least:
            yield f"{where} of {replicas} replicas with {least} each; at most {(least - unit) * replicas}"


def own_scores_are_of_current_weights(plan: Plan) -> Iterator[str]:
    """A trainer that gives itself what an assessment gave (`prune`) has other weights after its first update."""
    updates = plan.workload.minibatches * plan.workload.epochs
    for stage in plan.graph.stages:
        if stage.kind is Kind.TRAIN and stage.gives and updates > 1:
            yield (
                f"stage {stage.name} gives {', '.join(sorted(stage.gives))} itself and takes {updates} updates a step; "
                f"only with 1 are they of the weights that the step begins with: keep the assessment"
            )


def lanes_hold_their_slots(plan: Plan, lowered: Lowered) -> Iterator[str]:
    planned = {lane.name: Counter(turn.slot for turn in lane.turns) for lane in plan.order}
    for name, slots in lowered.lanes.items():
        have = planned.pop(name, Counter())
        yield from (f"lane {name} does not run {slot}" for slot in slots if not have[slot])
        yield from (f"lane {name} runs {slot} {n} times a period" for slot, n in have.items() if n > 1)
        yield from (
            f"lane {name} runs {slot}, which is not assigned to it" for slot in have if slot not in set(slots)
        )
    yield from (f"lane {name} is in the order and no stage uses it" for name in planned)


def shifts_are_one_a_slot(plan: Plan, lowered: Lowered) -> Iterator[str]:
    shifts: dict[Slot, set[int]] = {}
    for lane in plan.order:
        for turn in lane.turns:
            shifts.setdefault(turn.slot, set()).add(turn.shift)
    yield from (
        f"{slot} has shifts {sorted(found)} on different lanes"
        for slot, found in shifts.items()
        if len(found) > 1
    )
    yield from (
        f"{slot} has shift {min(found)}; at least 0" for slot, found in shifts.items() if min(found) < 0
    )


def shifts_respect_arcs(plan: Plan, lowered: Lowered) -> Iterator[str]:
    shifts = plan.shifts
    for arc in lowered.arcs:
        src, dst = shifts.get(arc.src, 0), shifts.get(arc.dst, 0)
        if arc.delay + dst - src < 0:
            yield (
                f"{arc.dst} (shift {dst}) needs {arc.why} of {arc.src} (shift {src}) after {arc.delay} steps: it would "
                f"run {src - dst - arc.delay} period{'s' if src - dst - arc.delay > 1 else ''} too early; "
                f"raise its shift to {src - arc.delay} or lower the other"
            )


def order_cannot_deadlock(plan: Plan, lowered: Lowered) -> Iterator[str]:
    cycle = find_cycle(plan, lowered)
    if cycle:
        yield "these wait for each other in one period: " + " → ".join(
            str(slot) for slot in (*cycle, cycle[0])
        )


def offload_is_of_own_memory(plan: Plan, lowered: Lowered) -> Iterator[str]:
    """Who uses another's memory rests with it: that one's assignment says how."""
    for stage in plan.graph.stages:
        offload, hosts = plan.assignment(stage.name).offload, owners(plan.graph, stage, lowered.copies)
        if offload == "none":
            continue
        if offload == "optimizer" and stage.kind is not Kind.TRAIN:
            yield f"stage {stage.name} has offload optimizer and trains nothing; use none or all"
        elif not stage.models:
            yield f"stage {stage.name} has offload {offload} and no model; use none"
        elif stage.name not in {rest.stage for rest in lowered.rests}:
            yield from (
                f"stage {stage.name} has offload {offload} and uses the memory of {name}, whose offload is "
                f"{plan.assignment(name).offload}; set it there"
                for name in hosts
                if plan.assignment(name).offload != offload
            )


STATIC_RULES: tuple[StaticRule, ...] = (
    blocks_exist,
    kinds_fit_blocks,
    parallelism_fits_blocks,
    generators_hold_whole_models,
    batches_divide,
    parts_are_supported,
    migrated_responses_are_some_of_each_replica,
    own_scores_are_of_current_weights,
)
ORDER_RULES: tuple[OrderRule, ...] = (
    lanes_hold_their_slots,
    shifts_are_one_a_slot,
    shifts_respect_arcs,
    order_cannot_deadlock,
    offload_is_of_own_memory,
)


def violations(plan: Plan) -> tuple[tuple[str, str], ...]:
    """(rule name, sentence) of all that is wrong. Later rules are not tried where earlier ones leave no ground."""
    unassigned = [(every_stage_is_assigned_once.__name__, s) for s in every_stage_is_assigned_once(plan)]
    if unassigned:
        return tuple(unassigned)
    static = tuple((rule.__name__, sentence) for rule in STATIC_RULES for sentence in rule(plan))
    if static:
        return static
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    held = tuple((rule.__name__, s) for rule in ORDER_RULES[:2] for s in rule(plan, lowered))
    return held or tuple((rule.__name__, s) for rule in ORDER_RULES[2:] for s in rule(plan, lowered))


def check(plan: Plan) -> Plan:
    """The plan itself, if it can run. Raises GraphError or PlanError with every reason why it cannot."""
    verify(plan.graph)
    found = violations(plan)
    if found:
        lines = "".join(f"\n  {rule}: {sentence}" for rule, sentence in found)
        raise PlanError(f"the plan for {plan.graph.name} cannot run:{lines}")
    return plan


def find_cycle(plan: Plan, lowered: Lowered) -> tuple[Slot, ...]:
    """Slots that wait for each other within a period, by data, weights and lane order together; () if none do."""
    after: dict[Slot, set[Slot]] = {slot: set() for slot in lowered.tasks}
    shifts = plan.shifts
    for arc in lowered.arcs:
        if arc.src != arc.dst and arc.delay + shifts[arc.dst] - shifts[arc.src] == 0:
            after[arc.src].add(arc.dst)
    for lane in plan.order:
        for first, second in zip(lane.turns, lane.turns[1:], strict=False):
            after[first.slot].add(second.slot)
    return _cycle_in(after)


def _cycle_in(after: dict[Slot, set[Slot]]) -> tuple[Slot, ...]:
    """Depth-first search without recursion: lanes of long streams are deeper than the interpreter's stack."""
    done: set[Slot] = set()
    for root in sorted(after):
        if root in done:
            continue
        path: list[Slot] = [root]
        on_path = {root}
        pending = [iter(sorted(after[root]))]
        while pending:
            following = next(pending[-1], None)
            if following is None:
                pending.pop()
                on_path.discard(path[-1])
                done.add(path.pop())
            elif following in on_path:
                return tuple(path[path.index(following) :])
            elif following not in done:
                path.append(following)
                on_path.add(following)
                pending.append(iter(sorted(after[following])))
    return ()


def _nearest_divisors(number: int, wanted: int) -> str:
    """The divisors of `number` on either side of `wanted`, as ``6 or 8``."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    below = [d for d in divisors if d < wanted][-1:]
    above = [d for d in divisors if d > wanted][:1]
    return " or ".join(str(d) for d in below + above)
