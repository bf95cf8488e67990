import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.cost.passes.slots import REFILL_SHARE, groups_of, schedule


def token_by_token(prompts: list[int], responses: list[int], groups: list[int], slots: int) -> dict:
    """The same policy, one decode step at a time over a list of active samples."""
    slots = min(slots, len(prompts))
    enough = max(1, round(slots * REFILL_SHARE))
    waiting = list(range(len(prompts)))
    active: dict[int, int] = {}
    out: dict = {"rows": [], "context": [], "finish": {}, "admissions": [], "leaving": []}
    kept = None
    while waiting or active:
        free = slots - len(active)
        if waiting and free >= min(enough, len(waiting)):
            entering, waiting = waiting[:free], waiting[free:]
            fresh = {groups[i] for i in entering} - {kept}
            kept = groups[entering[-1]]
            out["admissions"].append((len(out["rows"]), len(entering), len(fresh)))
            active.update(dict.fromkeys(entering, 1))
            for i in entering:
                if responses[i] == 1:
                    out["finish"][i] = len(out["rows"])
                    del active[i]
        if active:
            out["rows"].append(len(active))
            out["context"].append(max(prompts[i] + tokens for i, tokens in active.items()))
            active = {i: tokens + 1 for i, tokens in active.items()}
            done = [i for i, tokens in active.items() if tokens == responses[i]]
            out["leaving"].append(len(done))
            for i in done:
                out["finish"][i] = len(out["rows"])
                del active[i]
    return out


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 9),
    st.data(),
)
def test_the_schedule_is_that_of_a_token_by_token_walk(prompts, k, slots, data) -> None:
    lengths = np.repeat(np.array(prompts), k)
    responses = np.array(
        data.draw(st.lists(st.integers(1, 12), min_size=len(lengths), max_size=len(lengths)))
    )
    groups = groups_of(len(lengths), k)
    plan = schedule(lengths, responses, groups, slots)
    walk = token_by_token(lengths.tolist(), responses.tolist(), groups.tolist(), slots)
    assert plan.rows.tolist() == walk["rows"]
    assert plan.context.tolist() == walk["context"]
    assert plan.leaving.tolist() == walk["leaving"]
    assert plan.finish.tolist() == [walk["finish"][i] for i in range(len(lengths))]
    assert [tuple(a) for a in plan.admissions[:, :3].tolist()] == walk["admissions"]
    assert plan.rows.sum() == (responses - 1).sum()


def test_a_prompt_is_prefilled_once_for_all_its_samples() -> None:
    prompts, responses = np.full(8, 5), np.full(8, 4)
    plan = schedule(prompts, responses, groups_of(8, 8), slots=2)
    assert plan.admissions[:, 2].tolist() == [1, 0, 0, 0]
    assert plan.admissions[:, 1].sum() == 8


def test_equal_lengths_run_in_waves() -> None:
    plan = schedule(np.full(6, 3), np.full(6, 5), groups_of(6, 1), slots=3)
    assert plan.rows.tolist() == [3] * 8
    assert plan.context.tolist() == [4, 5, 6, 7] * 2
    assert plan.finish.tolist() == [4, 4, 4, 8, 8, 8]


@pytest.mark.parametrize("slots", [1, 3, 100])
def test_responses_of_one_token_need_no_decode_step(slots: int) -> None:
    plan = schedule(np.full(4, 3), np.ones(4, dtype=np.int64), groups_of(4, 2), slots)
    assert plan.steps == 0
    assert plan.finish.tolist() == [0] * 4
