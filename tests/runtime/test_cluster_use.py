"""Runs on Ray clusters: of two nodes on this machine, of two in network namespaces, and alone on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from plans import grpo_graph
from rpeg.errors import InputError
from rpeg.runtime.ray_cluster import LOOPBACK, ray_cluster, seats
from runtime.runs import Silent, make_job, plan_for, run, tiny_model
from runtime.train_on_nodes import plan_over, two_racks

SCRIPT = Path(__file__).parent / "train_on_nodes.py"
SUBNET = "198.18.77"
"""Of the range for tests of networks: https://www.rfc-editor.org/rfc/rfc2544#appendix-C"""
STORE = 100 * 2**20


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    """The address of a Ray cluster of two nodes on this machine, in racks a and b, on loopback."""
    from ray._private import services
    from ray.cluster_utils import Cluster

    services.resolve_ip_for_localhost = lambda host: host  # type: ignore[assignment]
    common = {"num_cpus": 3, "node_ip_address": LOOPBACK, "object_store_memory": STORE}
    cluster = Cluster(
        initialize_head=True, head_node_args={**common, "include_dashboard": False, "labels": {"rack": "a"}}
    )
    try:
        cluster.add_node(**common, labels={"rack": "b"})
        yield cluster.address
    finally:
        cluster.shutdown()


def trained(command: list[str], address: str, directory: Path) -> dict[str, object]:
    """What the script prints."""
    ended = subprocess.run(
        [*command, sys.executable, str(SCRIPT), address, str(directory)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, object] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_plan_of_two_nodes_runs_over_two_nodes(two_nodes: str, tmp_path: Path) -> None:
    found = trained([], two_nodes, tmp_path)
    assert len(found["nodes"]) == 3  # type: ignore[arg-type]
    assert len(set(found["nodes"])) == 2  # type: ignore[call-overload]
    assert found["steps"] == 2
    assert str(found["proof"]).startswith("proven")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_a_cluster_lacks_and_where_a_run_is_not_seen_is_said(two_nodes: str, tmp_path: Path) -> None:
    job = make_job(tiny_model(tmp_path / "model"), tmp_path / "run")
    lanes = ["device0"]
    large = plan_for(job, rest=(0, 1, 2, 3))  # one node of four processes, and a host slot
    with (
        pytest.raises(InputError, match=r"needs 1 nodes with 5 workers .* on the 2 nodes of the cluster"),
        ray_cluster(1, two_nodes) as here,
        seats(large, lanes, two_nodes, here, tmp_path),
    ):
        pass
    small = plan_over(two_racks(), grpo_graph())
    with (
        pytest.raises(InputError, match=rf"node {LOOPBACK} does not see .*filesystem that all nodes share"),
        ray_cluster(1, two_nodes) as here,
        seats(small, lanes, two_nodes, here, tmp_path / "nowhere"),
    ):
        pass


@pytest.mark.slow
def test_where_no_cluster_answers_is_said() -> None:
    with (
        pytest.raises(InputError, match="run rpeg on a node of the cluster"),
        ray_cluster(1, "ray://head:10001"),
    ):
        pass


# -- network namespaces -----------------------------------------------------------------------------------------------


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def namespaces() -> Iterator[tuple[str, str]]:
    """Two network namespaces that see each other, at .1 and .2, and nothing else. Skips where this needs rights."""
    names = tuple(f"rpeg-{os.getpid()}-{i}" for i in (1, 2))
    with ExitStack() as stack:
        try:
            for name in names:
                _ip("netns", "add", name)
                stack.callback(_ip, "netns", "delete", name)
                stack.callback(_end_all_in, name)
                _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", names[0], "link", "add", "rpeg0", "type", "veth", "peer", "rpeg0", "netns", names[1])
            for i, name in enumerate(names, 1):
                _ip("-n", name, "address", "add", f"{SUBNET}.{i}/24", "dev", "rpeg0")
                _ip("-n", name, "link", "set", "rpeg0", "up")
                _ip("-n", name, "route", "add", "default", "via", f"{SUBNET}.{3 - i}")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', None) or error}")
        yield names[0], names[1]


def _end_all_in(name: str) -> None:
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
    for pid in pids.split():
        psutil.Process(int(pid)).kill()


@contextmanager
def ray_node(name: str, *arguments: str) -> Iterator[None]:
    command = ["ip", "netns", "exec", name, sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    common = ["--num-cpus=3", f"--object-store-memory={STORE}", "--disable-usage-stats"]
    with subprocess.Popen(
        [*command, *common, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_plan_of_two_nodes_runs_over_a_network(tmp_path: Path) -> None:
    with (
        namespaces() as (first, second),
        ray_node(first, "--head", "--port=6399", f"--node-ip-address={SUBNET}.1", "--labels=rack=a",
                 "--include-dashboard=false"),
        ray_node(second, f"--address={SUBNET}.1:6399", f"--node-ip-address={SUBNET}.2", "--labels=rack=b"),
    ):  # fmt: skip
        _wait_for_nodes(first, f"{SUBNET}.1:6399", 2)
        found = trained(["ip", "netns", "exec", first], f"{SUBNET}.1:6399", tmp_path)
    assert len(set(found["nodes"])) == 2  # type: ignore[call-overload]
    assert str(found["proof"]).startswith("proven")


def _wait_for_nodes(name: str, address: str, count: int) -> None:
    script = (
        "import sys, time, ray\n"
        "for _ in range(100):\n"
        "    try:\n"
        f"        ray.init(address={address!r}, log_to_driver=False, logging_level='ERROR')\n"
        "        break\n"
        "    except ConnectionError:\n"
        "        time.sleep(1)\n"
        f"while sum(n['Alive'] for n in ray.nodes()) < {count}:\n"
        "    time.sleep(0.5)\n"
    )
    command = ["ip", "netns", "exec", name, sys.executable, "-c", script]
    subprocess.run(command, check=True, timeout=150, capture_output=True)


# -- loopback ---------------------------------------------------------------------------------------------------------


class Listening(Silent):
    """Notes where this process and all below it listen while the run goes on."""

    at: set[str]

    def on_stage(self, text: str) -> None:
        if text != "running":
            return
        here = psutil.Process()
        processes = [here, *here.children(recursive=True)]
        self.at = {
            connection.laddr.ip
            for process in processes
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }


@pytest.mark.slow
def test_without_an_address_nothing_listens_but_on_loopback(tmp_path: Path) -> None:
    job = make_job(tiny_model(tmp_path / "model"), tmp_path / "run", dtype="float32", steps=1)
    view = Listening([])
    run(job, plan_for(job), view=view)
    assert LOOPBACK in view.at
    assert view.at <= {LOOPBACK, "::1", "::ffff:127.0.0.1"}
