"""Jobs on hardware that is not here, run on fake devices: the directory that is left, what proves it, and resuming."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rpeg.cli.main import make_app
from rpeg.errors import InputError, RunError
from rpeg.job import Job, load_job
from rpeg.plan import Plan, read_plan
from rpeg.runtime import Options, Outcome, prepare_directory
from rpeg.runtime.fake.costs import FakeCosts
from rpeg.runtime.fake.injection import NOTHING, Failure, Injection, Pressure
from rpeg.runtime.fake.pretend import Fake, lanes_of_plan, pretend, shared_out
from rpeg.search import from_job
from rpeg.sim import StageCosts, simulate
from rpeg.trace import read_traces, sources
from rpeg.verify import prove, prove_run
from runtime.runs import Silent

EXAMPLE = Path(__file__).parents[2] / "examples" / "plan-gh200.yaml"


def rpeg(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), arguments)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(job file, plan file) of GRPO on one node of four devices."""
    directory = tmp_path_factory.mktemp("fake")
    text = EXAMPLE.read_text().replace("alps: 4", "alps: 1").replace("prompts: 128", "prompts: 32")
    job, plan = directory / "job.yaml", directory / "plan.json"
    job.write_text(text + "\nsteps: 6\ncheckpoint: {every: 2, keep: 2}\n")
    result = rpeg("plan", str(job), "--out", str(plan), "--no-search")
    assert result.exit_code == 0, result.output
    return job, plan


def _run(
    planned: tuple[Path, Path],
    output: Path,
    injection: Injection = NOTHING,
    *,
    scale: float | None = None,
    resume: bool = False,
    stall_seconds: float = 1e9,
    restarts: int = 3,
) -> Outcome:
    job = load_job(planned[0]).model_copy(update={"output": str(output)})
    plan = read_plan(planned[1])
    options = Options(resume=resume, stall_seconds=stall_seconds, restarts=restarts)
    run, found, start = prepare_directory(job, plan, options)
    assert found is not None
    fake = Fake(_costs(job, plan), scale, injection, processes=2)
    return pretend(job, found, run, start, options, Silent([]), fake)


def _costs(job: Job, plan: Plan) -> StageCosts:
    return StageCosts(plan, from_job(job, 0).facts)


def test_a_virtual_run_leaves_a_directory_like_any_other(planned: tuple[Path, Path], tmp_path: Path) -> None:
    job, plan, run = str(planned[0]), str(planned[1]), str(tmp_path / "run")
    ran = rpeg("train", job, "--plan", plan, "--fake", "virtual", "--output", run)
    assert ran.exit_code == 0, ran.output
    assert "fake devices: times are the cost model's, nothing is trained" in ran.output
    assert sources(Path(run)) == ("fake",)
    assert "proven" in rpeg("verify", run).output
    compared = json.loads(rpeg("compare", run, "--json").output)
    assert compared["step"]["error"] == pytest.approx(0.0, abs=1e-9)
    more = rpeg(
        "train", job, "--plan", plan, "--fake", "virtual", "--output", run, "--resume", "--steps", "9"
    )
    assert more.exit_code == 0, more.output
    assert "proven" in rpeg("verify", run).output
    assert len(read_traces(Path(run))) == 2


def test_a_scale_is_a_positive_number(planned: tuple[Path, Path]) -> None:
    for text in ("fast", "0", "-1", "nan", "inf"):
        refused = rpeg("train", str(planned[0]), "--fake", text)
        assert refused.exit_code == 2
        assert "a scale is seconds here" in refused.output


def test_fake_and_other_stretches_are_not_mixed(planned: tuple[Path, Path], tmp_path: Path) -> None:
    _run(planned, tmp_path)
    header = tmp_path / "trace-1" / "header.json"
    header.write_text(header.read_text().replace('"fake"', '"real"'))
    longer = planned[0].with_name("longer.yaml")
    longer.write_text(planned[0].read_text().replace("steps: 6", "steps: 9"))
    with pytest.raises(InputError, match="on real devices and this one would be on fake ones"):
        _run((longer, planned[1]), tmp_path, resume=True)


def test_a_run_that_fails_goes_on_from_its_checkpoint(planned: tuple[Path, Path], tmp_path: Path) -> None:
    failing = Injection(failures=(Failure("die", "train_actor", 4),))
    with pytest.raises(RunError, match=r"train_actor\[step 4.*has died[\s\S]*after 4 steps; go on with"):
        _run(planned, tmp_path, failing, restarts=0)
    outcome = _run(planned, tmp_path, resume=True)
    assert (outcome.first_step, outcome.steps, outcome.finished) == (4, 6, True)
    traces = read_traces(tmp_path)
    assert len(traces) == 2
    assert prove_run(traces).broken == ()


def test_a_run_that_loses_a_process_repairs_itself_as_a_real_one_does(
    planned: tuple[Path, Path], tmp_path: Path
) -> None:
    strikes = (Failure("die", "train_actor", 3), Failure("raise", "reference", 4, stretch=2))
    outcome = _run(planned, tmp_path, Injection(failures=strikes))
    assert (outcome.first_step, outcome.steps, outcome.finished) == (4, 6, True)
    assert len(read_traces(tmp_path)) == 3
    assert prove_run(read_traces(tmp_path)).broken == ()


def test_memory_pressure_stops_the_run_where_it_can_go_on(planned: tuple[Path, Path], tmp_path: Path) -> None:
    """Nothing is repaired: it would lack the memory again."""
    lane = read_plan(planned[1]).assignment("train_actor").all_lanes()[0]
    pressed = Injection(pressures=(Pressure(lane, 3, 2**40),))
    with pytest.raises(RunError, match=rf"(?s)on {lane} ran out of memory.*GiB more than.*after 2 steps"):
        _run(planned, tmp_path, pressed)
    assert len(read_traces(tmp_path)) == 1
    assert _run(planned, tmp_path, resume=True).finished


def test_lanes_are_shared_out_to_neighbours(planned: tuple[Path, Path]) -> None:
    lanes = lanes_of_plan(read_plan(planned[1]))
    assert lanes[-1].startswith("host")
    groups = shared_out(lanes, 3)
    assert [lane for group in groups for lane in group] == lanes
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    assert len(shared_out(lanes, 100)) == len(lanes)


@pytest.mark.slow
def test_on_processes_that_ray_carries(planned: tuple[Path, Path], tmp_path: Path) -> None:
    """Real processes of many lanes: the trace is proven, and no item takes less than its time."""
    outcome = _run(planned, tmp_path / "well", scale=0.001, stall_seconds=300)
    assert outcome.finished
    (trace,) = read_traces(tmp_path / "well")
    assert prove(trace).broken == ()
    assert {span.worker for span in trace.spans} == {"fake0", "fake1"}
    plan = read_plan(planned[1])
    costs = FakeCosts(_costs(load_job(planned[0]), plan), NOTHING, 0.001, 0.0)
    predicted = {(s.item, s.lane): s.seconds for s in simulate(plan, costs, 6).spans}
    for span in trace.spans:
        assert span.seconds >= predicted[span.item, span.lane] - 1e-6


@pytest.mark.slow
def test_a_process_that_dies_is_replaced_with_its_fellows(planned: tuple[Path, Path], tmp_path: Path) -> None:
    dying = Injection(failures=(Failure("die", "train_actor", 3),))
    outcome = _run(planned, tmp_path, dying, scale=0.001, stall_seconds=300)
    assert (outcome.first_step, outcome.finished) == (2, True)
    assert len(read_traces(tmp_path)) == 2
    assert prove_run(read_traces(tmp_path)).broken == ()
