"""The compiled core: how it is built, what it says where it cannot be, and what it asks for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rpeg.algorithms import grpo
from rpeg.errors import InputError
from rpeg.search.core import build, library
from rpeg.search.hardware_plan import found_starts
from rpeg.search.problem import Permissions
from rpeg.search.synthetic import Drawn, search_in


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_it_is_built_whole_under_the_name_of_its_sources(tmp_path: Path) -> None:
    made = build.build(tmp_path)
    assert made == tmp_path / build.file_name()
    assert [path.name for path in tmp_path.iterdir()] == [made.name]


def test_without_a_compiler_the_way_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "file_name", lambda: "core-of-other-sources.so")
    monkeypatch.setenv("RPEG_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(InputError, match=r"no-such-compiler.*install a C compiler \(CC names it\)"):
        library._loaded()


def test_words_of_the_compiler_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "file_name", lambda: "core-of-other-sources.so")
    monkeypatch.setenv("RPEG_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "sh -c 'echo no licence today >&2; exit 1'")
    with pytest.raises(InputError, match="no licence today"):
        library._loaded()


def test_without_an_allowance_nothing_is_asked() -> None:
    graph = grpo.graph(grpo.Hyper(kl_coefficient=0.0))
    search = search_in(graph, Drawn(1, (8,)), Permissions(), draws=2, islands=6)
    start = min(found_starts(search, 0, steps=5), key=lambda one: one.objective)
    asked = search.tables.asked
    best, last = search.burst(start, 500, seed=1, allowance=0)
    assert search.tables.asked == asked
    assert best.objective <= start.objective
    freely, _ = search.burst(start, 500, seed=1)
    assert search.tables.asked > asked
    assert freely.objective <= start.objective
    assert last.is_plan


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_library_that_was_cut_short_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = build.file_name()
    monkeypatch.setattr(build, "file_name", lambda: f"other-{name}")
    monkeypatch.setenv("RPEG_CACHE", str(tmp_path))
    (tmp_path / f"other-{name}").write_bytes(b"cut")
    assert library._loaded().rpeg_objective
    assert (tmp_path / f"other-{name}").stat().st_size > 1000


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_where_the_cache_cannot_be_written_it_is_built_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = build.file_name()
    monkeypatch.setattr(build, "file_name", lambda: f"other-{name}")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RPEG_CACHE", str(tmp_path / "file" / "cache"))
    assert library._loaded().rpeg_objective
