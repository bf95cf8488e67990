"""What a proof says."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.plan import Item
from rpeg.trace import Entry, Span
from rpeg.units import seconds_text


@dataclass(frozen=True, slots=True)
class Finding:
    """A property that does not hold. counterexample: the items, spans and log entries that contradict it, as text.

    stretch: which of the run's stretches, from 1; 0 for the ledger that they make together.
    """

    property: str
    sentence: str
    counterexample: tuple[str, ...] = ()
    stretch: int = 1


@dataclass(frozen=True, slots=True)
class Proof:
    """Proven if there are no findings. properties: those that were tried. counts: (what was looked at, how many)."""

    findings: tuple[Finding, ...]
    properties: tuple[str, ...]
    counts: tuple[tuple[str, int], ...]

    @property
    def holds(self) -> bool:
        return not self.findings

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the properties that do not hold, each once."""
        return tuple(dict.fromkeys(finding.property for finding in self.findings))

    @property
    def stretches(self) -> int:
        """How many stretches of a run it is about."""
        return dict(self.counts).get("stretches", 1)

    def text(self, most: int = 3) -> str:
        """What was proven, or the first `most` counterexamples of each property that does not hold."""
        looked_at = ", ".join(f"{count} {what}" for what, count in self.counts)
        if self.holds:
            return f"proven: {len(self.properties)} properties over {looked_at}"
        lines = [f"not proven: {len(self.broken)} of {len(self.properties)} properties fail over {looked_at}"]
        for name in self.broken:
            found = [f for f in self.findings if f.property == name]
            lines.append(f"{name.replace('_', ' ')}:")
            for finding in found[:most]:
                where = f"stretch {finding.stretch}: " if self.stretches > 1 and finding.stretch else ""
                lines.append(f"  {where}{finding.sentence}")
                lines += [f"    {text}" for text in finding.counterexample]
            if len(found) > most:
                lines.append(f"  … and {len(found) - most} more")
        return "\n".join(lines)


def describe(thing: Item | Entry | Span) -> str:
    """A piece of evidence as one line."""
    if isinstance(thing, Span):
        return (
            f"span of {thing.item} on {thing.lane} by {thing.worker}: {thing.start_seconds:.6f} s to "
            f"{thing.end_seconds:.6f} s of its clock ({seconds_text(thing.seconds)}), for command #{thing.launch}"
        )
    if isinstance(thing, Entry):
        part = "" if thing.part is None else f", base part {thing.part}"
        return (
            f"log #{thing.seq} {thing.what} {thing.item}{part} at {thing.seconds:.6f} s of the driver's clock"
        )
    return str(thing)
