"""Proofs from a trace: that a run did what its plan says, or a counterexample.

`prove(trace)` runs every property of `PROPERTIES` over one stretch; `prove_run(traces)` over all stretches of a run that
was resumed, and over the ledger that they make together. A property is a function from evidence to breaches; to add
one, write it in the file of its subject and name it in that file's tuple.
"""

from rpeg.verify.clocks import Offset, clock_offsets, on_driver_clock
from rpeg.verify.evidence import Breach, Evidence, Property
from rpeg.verify.proof import Finding, Proof
from rpeg.verify.prove import PROPERTIES, demand, prove
from rpeg.verify.run import RUN_PROPERTIES, effective_stretches, prove_run

__all__ = [
    "PROPERTIES",
    "RUN_PROPERTIES",
    "Breach",
    "Evidence",
    "Finding",
    "Offset",
    "Proof",
    "Property",
    "clock_offsets",
    "demand",
    "effective_stretches",
    "on_driver_clock",
    "prove",
    "prove_run",
]
