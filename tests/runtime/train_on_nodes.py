"""Trains a small job over two nodes of a running Ray cluster: `python train_on_nodes.py ADDRESS DIRECTORY`.

Prints as JSON on which Ray nodes the workers sat, how many steps were done and what the trace proves.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from plans import make_plan
from rpeg.cluster import Cluster, Rack, local
from rpeg.plan import Plan
from rpeg.runtime import Options, prepare_directory, train
from rpeg.trace import read_traces
from rpeg.verify import prove_run
from rpeg.workload import Workload, constant
from runtime.runs import Silent, counting, make_job, tiny_model


class Seeing(Silent):
    """Notes which nodes hold the workers' places when they run."""

    nodes: list[str]

    def on_stage(self, text: str) -> None:
        import ray

        if text == "running":
            (table,) = ray.util.placement_group_table().values()
            self.nodes = sorted(table["bundles_to_node_id"].values())


def two_racks() -> Cluster:
    """Two racks of one node of one process each."""
    one = local(1, 2**34)
    rack = Rack(one.racks[0].nodes, one.racks[0].link)
    return Cluster("two", (rack, rack), one.link)


def plan_over(cluster: Cluster, job_graph: object) -> Plan:
    """Generation on the first node; assessment and training on both."""
    blocks = {"generate": (0,), "old_logprob": (0, 1), "train_actor": (0, 1)}
    workload = Workload(4, 4, constant(9), constant(6), 2)
    return make_plan(job_graph, blocks, cluster=cluster, workload=workload, microbatch=4)  # type: ignore[arg-type]


def main(address: str, directory: Path) -> None:
    model = tiny_model(directory / "model")
    job = make_job(
        model,
        directory / "run",
        algorithm="grpo",
        dtype="float32",
        hyper={"kl_in": "none"},
        reward=counting(model),
    )
    options = Options(address=address, export=False, stall_seconds=100)
    run, plan, start = prepare_directory(job, plan_over(two_racks(), job.graph()), options)
    assert plan is not None
    view = Seeing([])
    outcome = train(job, plan, run, start, options, view)
    proof = prove_run(read_traces(outcome.directory))
    print(json.dumps({"nodes": view.nodes, "steps": outcome.steps, "proof": proof.text()}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
