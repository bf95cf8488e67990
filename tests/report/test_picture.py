"""The picture of a step."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from plans_shown import local_plans, node_plans

from rpeg.report.picture import MOST_ROWS, Picture, picture_of, svg
from rpeg.report.svg import Drawing, fitted


@pytest.fixture(scope="module")
def picture() -> Picture:
    problem, ranked = node_plans()
    return picture_of(ranked.best.plan, problem.facts)


def test_it_is_one_step_of_every_device(picture: Picture) -> None:
    for _, rows, _ in picture.groups:
        assert len(rows) <= MOST_ROWS
        for row in rows:
            assert all(0 <= p.start_seconds < p.end_seconds <= picture.seconds for p in row.pieces)
            assert all(
                a.end_seconds <= b.start_seconds + 1e-9
                for a, b in zip(row.pieces, row.pieces[1:], strict=False)
            )
    drawn = sum(len(row.devices) for _, rows, _ in picture.groups for row in rows)
    assert drawn + sum(left_out for _, _, left_out in picture.groups) == 8


def test_it_is_well_formed_and_names_stages(picture: Picture) -> None:
    root = ElementTree.fromstring(svg(picture))
    assert root.tag.endswith("svg")
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"generate", "train_actor"} <= texts
    assert float(root.attrib["height"]) > 100


def test_names_of_jobs_are_escaped(picture: Picture) -> None:
    plan = picture.plan
    hostile = replace(plan, cluster=replace(plan.cluster, name="<script>&\"'\x00"))
    text = svg(replace(picture, plan=hostile))
    assert "<script>" not in text
    ElementTree.fromstring(text)


def test_processes_of_this_machine_are_drawn_too() -> None:
    problem, ranked = local_plans()
    found = picture_of(ranked.best.plan, problem.facts)
    assert found.seconds > 0
    ElementTree.fromstring(svg(found))


def test_words_are_cut_to_their_room() -> None:
    assert fitted("generate", 500) == "generate"
    assert fitted("generate", 40).endswith("…")
    assert fitted("generate", 10) == ""
    drawing = Drawing(10, 10)
    drawing.text(0, 0, "")
    assert "<text" not in drawing.to_text("empty")
