"""A run that was resumed: each stretch by itself, and the ledger that all make together.

A stretch that begins at step s supersedes what earlier ones did at steps ≥ s: the checkpoint that it starts from does
not know of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from rpeg.ir import Kind
from rpeg.trace import Span, Trace
from rpeg.verify.evidence import Breach, Evidence
from rpeg.verify.proof import Finding, Proof, describe
from rpeg.verify.prove import prove

RunProperty = Callable[[Sequence[Evidence]], Iterator[Breach]]


def effective_stretches(firsts: Sequence[int], steps: int) -> Mapping[int, int]:
    """Step → the stretch, by index, whose work at that step counts: the last one that began at or before it."""
    return {
        step: max(i for i, first in enumerate(firsts) if first <= step)
        for step in range(min(firsts, default=steps), steps)
    }


def stretches_are_of_one_plan(run: Sequence[Evidence]) -> Iterator[Breach]:
    for i, evidence in enumerate(run[1:], 2):
        before, plan = run[0].trace.plan, evidence.trace.plan
        if (before.graph, before.workload) != (plan.graph, plan.workload):
            yield f"stretch {i} is of another graph or workload than stretch 1", ()
        seeds = run[0].trace.seed, evidence.trace.seed
        if None not in seeds and seeds[0] != seeds[1]:
            yield f"stretch {i} is of seed {seeds[1]}, stretch 1 of seed {seeds[0]}", ()


def every_step_is_trained_once(run: Sequence[Evidence]) -> Iterator[Breach]:
    """In the effective ledger each step that counts was trained by every trainer, up to the last stretch's end."""
    last = run[-1].trace
    owners = effective_stretches([e.trace.first_step for e in run], last.steps)
    trainers = [stage for stage in last.plan.graph.stages if stage.kind is Kind.TRAIN]
    due = {step: i for step, i in owners.items() if last.complete or i < len(run) - 1}
    for step, i in due.items():
        for stage in trainers:
            items = [task.slot.at(step) for task in run[i].lowered.tasks_of(stage.name)]
            if step % stage.every == 0 and not all(item in run[i].finished for item in items):
                yield f"{stage.name} never trained step {step}: stretch {i + 1} should have", tuple(items)


def every_sample_counts_once(run: Sequence[Evidence]) -> Iterator[Breach]:
    """Over the steps that count no trainer took a sample of one step again in another."""
    owners = effective_stretches([e.trace.first_step for e in run], max(e.trace.steps for e in run))
    for stage in (s for s in run[-1].trace.plan.graph.stages if s.kind is Kind.TRAIN):
        steps: dict[int, dict[int, Span]] = {}
        for step, i in owners.items():
            for task in run[i].lowered.tasks_of(stage.name):
                for span in run[i].spans.get(task.slot.at(step), ()):
                    for sample in span.ids:
                        steps.setdefault(sample, {})[step] = span
        for sample, taken in steps.items():
            if len(taken) > 1:
                names = " and ".join(str(step) for step in taken)
                yield (
                    f"sample {sample} was trained by {stage.name} at the steps {names}",
                    tuple(taken.values()),
                )


def resumed_weights_are_those_left(run: Sequence[Evidence]) -> Iterator[Breach]:
    """What a stretch tells of versions that it begins with is what the steps before made, in the stretch that counts."""
    for i, evidence in enumerate(run[1:], 1):
        first = evidence.trace.first_step
        owners = effective_stretches([e.trace.first_step for e in run[:i]], first)
        oldest = min((copy.version_before(first) for copy in evidence.lowered.copies), default=first)
        for version in range(oldest, first + 1):
            owner = owners.get(version - 1)
            if owner is None:
                continue
            left = _digests(run[owner], version)
            for name, (digest, span) in _digests(evidence, version).items():
                if name in left and left[name][0] != digest:
                    yield (
                        f"stretch {i + 1} begins with {name} of digest {digest}; stretch {owner + 1} left "
                        f"{left[name][0]}",
                        (left[name][1], span),
                    )


def _digests(evidence: Evidence, version: int) -> dict[str, tuple[str, Span]]:
    found: dict[str, tuple[str, Span]] = {}
    for span in evidence.trace.spans:
        for name, digest in span.digests.items():
            if name.endswith(f"@{version}"):
                found.setdefault(name, (digest, span))
    return found


RUN_PROPERTIES: tuple[RunProperty, ...] = (
    stretches_are_of_one_plan,
    every_step_is_trained_once,
    every_sample_counts_once,
    resumed_weights_are_those_left,
)


def prove_run(run: Sequence[Trace]) -> Proof:
    """What all stretches of a run prove, each by itself and together."""
    proofs = [prove(trace) for trace in run]
    found = [replace(f, stretch=i) for i, proof in enumerate(proofs, 1) for f in proof.findings]
    names = tuple(dict.fromkeys(name for proof in proofs for name in proof.properties))
    if len(run) > 1 and all(proof.counts for proof in proofs):
        evidence = [Evidence(trace) for trace in run]
        names += tuple(p.__name__ for p in RUN_PROPERTIES)
        for property_ in RUN_PROPERTIES:
            for sentence, things in property_(evidence):
                found.append(Finding(property_.__name__, sentence, tuple(map(describe, things)), 0))
    return Proof(tuple(found), names, _total(proofs))


def _total(proofs: Sequence[Proof]) -> tuple[tuple[str, int], ...]:
    """Counts over all stretches; lanes and workers are those of the largest, for they are the same ones."""
    total: Counter[str] = Counter()
    for proof in proofs:
        for what, count in proof.counts:
            total[what] = max(total[what], count) if what in ("lanes", "workers") else total[what] + count
    stretches = (("stretches", len(proofs)),) if len(proofs) > 1 else ()
    return (*stretches, *total.items())
