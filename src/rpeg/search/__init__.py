"""Finding good plans for a problem: `plan_job`."""

from rpeg.search.budget import Budget, Progress
from rpeg.search.candidate import Baseline, Candidate, Misfit, Ranked
from rpeg.search.constructions import Construction, build, constructions
from rpeg.search.from_job import (
    assumed_lengths,
    cluster_of,
    from_job,
    model_architecture,
    most_rows,
    permissions_of,
)
from rpeg.search.given import Given
from rpeg.search.infeasible import Infeasible, Shortage
from rpeg.search.own import check_given, lack
from rpeg.search.problem import Permissions, Problem
from rpeg.search.rank import can_fit, devices_in_short, plan_job
from rpeg.search.sensitivity import Effect, sensitivity
from rpeg.search.ways_out import ways_out

__all__ = [
    "Baseline",
    "Budget",
    "Candidate",
    "Construction",
    "Effect",
    "Given",
    "Infeasible",
    "Misfit",
    "Permissions",
    "Problem",
    "Progress",
    "Ranked",
    "Shortage",
    "assumed_lengths",
    "build",
    "can_fit",
    "check_given",
    "cluster_of",
    "constructions",
    "devices_in_short",
    "from_job",
    "lack",
    "model_architecture",
    "most_rows",
    "permissions_of",
    "plan_job",
    "sensitivity",
    "ways_out",
]
