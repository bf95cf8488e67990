"""What changes what is learned is used only where the job says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from problems import problem

from plans import make_plan
from rpeg.cli._planning import check_is_for
from rpeg.errors import InputError
from rpeg.job import Job, parse_job
from rpeg.plan import Plan
from rpeg.search import Permissions, constructions, from_job, permissions_of
from rpeg.transforms import Changes, parse, transforms

EXAMPLE = (Path(__file__).parents[2] / "examples" / "ppo.yaml").read_text()
SHARE = "share{actor=actor,critic=critic}"
BYPASS = "bypass{stage=old_logprob}"
STALE = "async{stage=generate,staleness=2,freshness=exact}"


@pytest.mark.parametrize(
    ("source", "permissions"),
    [
        (SHARE, Permissions(actor_critic_sharing=True)),
        (BYPASS, Permissions(behaviour_logprobs=True)),
        (STALE, Permissions(staleness=2)),
    ],
)
def test_each_needs_its_own_permission(source: str, permissions: Permissions) -> None:
    transform = parse(source)
    assert permissions.permits(transform)
    other = {SHARE, BYPASS, STALE} - {source}
    assert permissions.refused(map(parse, sorted(other))) == tuple(map(parse, sorted(other)))
    assert not Permissions(staleness=1).permits(transform)


def test_what_changes_the_schedule_alone_is_free() -> None:
    for text in ("fuse{a=reference,b=value}", "split{stage=generate,parts=2}", "prune{stage=reference}"):
        assert Permissions().permits(parse(text))


def test_whatever_needs_permission_names_a_key_of_the_job() -> None:
    known = type(_job().allow).model_fields
    for kind in transforms().values():
        assert (kind.permission in known) is (kind.changes is not Changes.SCHEDULE)


def test_the_search_uses_only_what_is_permitted() -> None:
    for permissions in (Permissions(), Permissions(staleness=1)):
        found = [t for c in constructions(problem(permissions=permissions)) for t in c.applied]
        assert found
        assert permissions.refused(found) == ()


def _job(**allow: object) -> Job:
    text = EXAMPLE.replace("cluster: {cpu: 2}", "cluster: {cpu: 1}")
    for key, value in allow.items():
        before = next(line for line in text.splitlines() if line.strip().startswith(f"{key}:"))
        text = text.replace(before, f"  {key}: {value}")
    return parse_job(text)


def _plan(job: Job, *texts: str) -> Plan:
    graph = job.graph()
    after = graph
    for text in texts:
        after = parse(text).apply(after)
    blocks = dict.fromkeys((s.name for s in after.stages), (0,))
    return make_plan(graph, blocks, texts, workload=from_job(job, 2**33).workload, devices=1)


def test_a_jobs_permissions_are_read() -> None:
    allowed = permissions_of(_job(actor_critic_sharing="true", behaviour_logprobs="true", staleness=3))
    assert allowed == Permissions(3, None, "exact", True, True)
    assert permissions_of(_job()) == Permissions()


@pytest.mark.parametrize(("source", "key"), [(SHARE, "actor_critic_sharing"), (BYPASS, "behaviour_logprobs")])
def test_a_given_plan_may_use_no_more_than_the_job_allows(source: str, key: str) -> None:
    with pytest.raises(InputError, match=f"set allow.{key}"):
        check_is_for(_plan(_job(), source), _job())
    job = _job(**{key: "true"})
    check_is_for(_plan(job, source), job)
