import subprocess
import sys
from itertools import pairwise

import pytest

from rpeg.architecture import Architecture
from rpeg.calibrate import Shapes, cache, cached, measure
from rpeg.calibrate.measure import _start, _wait
from rpeg.calibrate.probe import Probe, rounds
from rpeg.calibrate.shapes import ladder, points, response_tokens
from rpeg.calibrate.tables import averages, tables
from rpeg.cost import OPS, Calibration
from rpeg.cost.passes import table as files
from rpeg.errors import InputError, RunError
from rpeg.job.cache import cache_directory

TINY = Architecture("tiny", "llama", 2, 32, 4, 2, 8, 64, 64, 128, tied_embeddings=True)
LARGE = Architecture("large", "llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, tied_embeddings=True)


@pytest.mark.parametrize(
    ("first", "last", "ratio"), [(1, 64, 4), (8, 48, 2.5), (8, 8, 2), (1, 3, 4), (8, 1000, 2.5)]
)
def test_a_ladder_holds_both_ends_and_no_wide_gap(first: int, last: int, ratio: float) -> None:
    steps = ladder(first, last, ratio)
    assert (steps[0], steps[-1]) == (first, last)
    assert all(a < b <= max(a * ratio * 1.31, a + 1) for a, b in pairwise(steps))


def test_points_reach_the_shapes_of_a_small_model_and_stop_early_for_a_large_one() -> None:
    small, large = points(TINY, Shapes(64, 48), "float32"), points(LARGE, Shapes(64, 512), "float32")
    assert small.decode[0][-1] == small.forward_backward[0][-1] == 64
    assert small.decode[1][-1] == small.forward[1][-1] == 48
    assert large.forward_backward[0][-1] * large.forward_backward[1][-1] < 64 * 512
    assert large.head[-1] * LARGE.vocabulary * 12 <= 3e8


def test_points_stay_within_the_context() -> None:
    assert points(TINY, Shapes(8, 4096), "float32").decode[1][-1] < TINY.context


def test_probes_keep_a_median_a_round() -> None:
    calls = []
    quick = Probe("op", (1,), lambda: calls.append("run"), before=lambda: calls.append("before"))
    fixed = Probe("op", (2,), lambda: calls.append("fixed"), calls=4)
    rounds([quick, fixed], 3, 1.0)
    assert len(quick.seconds) == len(fixed.seconds) == 3
    assert calls.count("run") == calls.count("before") == 3 * (1 + 40)
    assert calls.count("fixed") == 3 * (1 + 4)
    quick.seconds = [5.0, 1.0, 2.0]
    assert quick.median_seconds == 2.0


def measured() -> dict:
    micro = {(r, n): 1.0 + r * n for r in (1, 4) for n in (8, 16)}
    return {
        "decode": {(1, 8): 1.0, (1, 16): 1.5, (4, 8): 2.0, (4, 16): 2.5},
        "same": {(1,): 1.0, (4,): 1.3},
        "distinct": {(1, 8): 1.0, (4, 8): 3.0},
        "staying": {(1,): 2.0, (4,): 3.0},
        "leaving": {(1,): 1.9, (4,): 3.5},
        "head": {(4,): 0.4, (32,): 3.2},
        "head_backward": {(4,): 0.8, (32,): 6.4},
        "scored": micro,
        "trained": micro,
        "call": {(): 0.001},
    }


def test_tables_take_apart_what_was_timed_together() -> None:
    out = tables(measured())
    assert out["admit"].at(4) == pytest.approx(0.3)
    assert out["prefill"].at(4, 8) == pytest.approx(2.7)
    assert out["leave"].at(1) == 0.0
    assert out["leave"].at(4) == pytest.approx(0.5)
    assert out["forward"].at(4, 16) == pytest.approx(1 + 64 - 0.1 * response_tokens(4, 16))
    assert out["forward_backward"].at(4, 16) == pytest.approx(1 + 64 - 0.2 * response_tokens(4, 16))
    assert out["call"].at() == 0.001
    assert all(grid.axes == OPS[op] for op, grid in out.items())


def test_workers_are_averaged() -> None:
    one, two = {"head": {(4,): 1.0}}, {"head": {(4,): 3.0}}
    assert averages([one, two]) == {"head": {(4,): 2.0}}


def test_the_cache_is_where_it_is_told_and_knows_what_times_depend_on(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RPEG_CACHE", str(tmp_path))
    key = (TINY, "float32", 2, Shapes(8, 16))
    where = cache.path(*key)
    assert where.parent == tmp_path
    assert cached(*key) is None
    kept = Calibration("cpu", "m", "float32", "d", "tiny")
    files.write(kept, where)
    assert cached(*key) == kept
    assert measure(*key) == kept
    assert cached(TINY, "float64", 2, Shapes(8, 16)) is None
    assert cached(TINY, "float32", 1, Shapes(8, 16)) is None
    assert cached(LARGE, "float32", 2, Shapes(8, 16)) is None
    where.write_text("{", encoding="utf-8")
    assert cached(*key) is None


def test_the_cache_follows_the_desktop_convention(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("RPEG_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "rpeg"


def test_what_cannot_be_measured_is_refused_before_anything_starts(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RPEG_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="float8"):
        measure(TINY, "float8", 1)
    with pytest.raises(InputError, match=r"4096 processes asked of \d+ core"):
        measure(TINY, "float32", 4096)


def test_a_worker_that_dies_is_reported_with_what_it_said_and_ends_the_others(tmp_path) -> None:
    missing, log = tmp_path / "task.json", tmp_path / "log"
    broken = _start("worker", [missing, tmp_path / "result.json"], log)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(RunError, match=r"(?s)code 1.*FileNotFoundError"):
        _wait([broken, sleeper], [log, log])
    assert sleeper.returncode is not None


def test_importing_calibrate_is_light() -> None:
    code = "import sys, rpeg.calibrate; sys.exit(any(m in sys.modules for m in ('torch', 'ray', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
