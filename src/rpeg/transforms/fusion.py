"""Stage fusion: two stages that can run as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Self

from rpeg.errors import GraphError
from rpeg.ir import Graph, Kind, verify
from rpeg.transforms.base import Changes, Transform
from rpeg.transforms.merging import merge_stages


@dataclass(frozen=True)
class Fusion(Transform):
    """Makes stages `a` and `b` one, `a+b`, that takes its data once and makes the calls of both.

    Of assessments: calls of one model become one forward (log-probabilities and values on a shared backbone), those of
    several models score back to back without a hand-over. Of trainers: both update on one schedule.
    """

    name: ClassVar[str] = "fuse"
    changes: ClassVar[Changes] = Changes.SCHEDULE

    a: str
    b: str

    @property
    def words(self) -> str:
        return f"{self.a} and {self.b} run as one stage"

    def apply(self, graph: Graph) -> Graph:
        first, second = graph.stage(self.a), graph.stage(self.b)
        if first == second:
            raise GraphError(f"{self}: a stage is one already")
        if first.kind is not second.kind or first.kind not in (Kind.INFERENCE, Kind.TRAIN):
            raise GraphError(
                f"{self}: {self.a} is {first.kind} and {self.b} is {second.kind}; "
                "two assessments or two trainers can be one stage"
            )
        for what in ("every", "parts"):
            one, other = getattr(first, what), getattr(second, what)
            if one != other:
                raise GraphError(f"{self}: {self.a} has {what} {one} and {self.b} {other}; they must agree")
        hands_back = any(e.dst == self.a and e.model is None for e in graph.out_of(self.b))
        ordered = (self.b, self.a) if hands_back else (self.a, self.b)
        try:
            return verify(merge_stages(graph, *ordered))
        except GraphError as error:
            raise GraphError(f"{self}: {error}") from None

    @classmethod
    def candidates(cls, graph: Graph) -> Iterator[Self]:
        """Every pair of assessments and of trainers that can be one stage, in the order of the graph."""
        for kind in (Kind.INFERENCE, Kind.TRAIN):
            names = [s.name for s in graph.stages if s.kind is kind]
            yield from (t for t in (cls(a, b) for a, b in combinations(names, 2)) if t.applies(graph))
