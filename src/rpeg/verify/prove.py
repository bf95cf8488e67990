"""Every property over one stretch."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.errors import InputError, VerificationError
from rpeg.ir import Kind
from rpeg.plan import ItemKind, check
from rpeg.trace import Trace, What
from rpeg.verify.clocks import CLOCKS
from rpeg.verify.evidence import Breach, Evidence, Property
from rpeg.verify.log import LOG
from rpeg.verify.memory import MEMORY
from rpeg.verify.order import ORDER
from rpeg.verify.parts import PARTS
from rpeg.verify.placement import PLACEMENT
from rpeg.verify.proof import Finding, Proof, describe
from rpeg.verify.residency import RESIDENCY
from rpeg.verify.samples import SAMPLES
from rpeg.verify.selection import SELECTION
from rpeg.verify.versions import VERSIONS

PROPERTIES: tuple[Property, ...] = (
    LOG + PLACEMENT + ORDER + CLOCKS + VERSIONS + PARTS + SAMPLES + SELECTION + MEMORY + RESIDENCY
)


def plan_can_run(evidence: Evidence) -> Iterator[Breach]:
    """What a trace is measured against must itself be sound."""
    try:
        check(evidence.trace.plan)
    except InputError as error:
        yield str(error), ()


def prove(trace: Trace) -> Proof:
    """What one stretch proves by itself.

    A stretch that was cut short (`trace.complete` is False) is held to what it contains; one that came to its end also
    to all that its plan demands.
    """
    evidence = Evidence(trace)
    names = tuple(p.__name__ for p in (plan_can_run, *PROPERTIES))
    unsound = findings_of(plan_can_run, evidence)
    if unsound:
        return Proof(unsound, names[:1], ())
    found = tuple(finding for p in PROPERTIES for finding in findings_of(p, evidence))
    return Proof(found, names, _counts(evidence))


def demand(proof: Proof) -> Proof:
    """The proof itself if it holds. Raises VerificationError with the counterexamples."""
    if not proof.holds:
        raise VerificationError(proof.text())
    return proof


def findings_of(property_: Property, evidence: Evidence) -> tuple[Finding, ...]:
    """A property's breaches, as findings under its name."""
    return tuple(
        Finding(property_.__name__, sentence, tuple(describe(thing) for thing in things))
        for sentence, things in property_(evidence)
    )


def _counts(evidence: Evidence) -> tuple[tuple[str, int], ...]:
    trace = evidence.trace
    trained = {i for span in trace.spans if evidence.kind(span.item) is Kind.TRAIN for i in span.ids}
    rejected = sum(len(entry.ids) for entry in trace.entries if entry.what is What.REJECTED)
    return (
        ("steps", len({item.step for item in evidence.finished if item.step < trace.steps})),
        ("items", len(evidence.finished)),
        ("log entries", len(trace.entries)),
        ("spans", len(trace.spans)),
        ("lanes", len(evidence.spans_of_lane)),
        ("workers", len(evidence.spans_of_worker)),
        ("dependencies", sum(1 for item in evidence.commands for _ in evidence.sources(item))),
        ("versions read", sum(len(span.reads) for span in trace.spans)),
        ("weight transfers", sum(item.kind is ItemKind.TRANSFER for item in evidence.finished)),
        ("samples trained", len(trained)),
        *((("samples rejected", rejected),) if trace.plan.graph.selector is not None else ()),
    )
