import pytest

from rpeg.cost import Cost, parallel, sequence

A = Cost("a", 2.0, 100.0, 10.0, "compute", 2.0)
B = Cost("b", 1.5, 50.0, 20.0, "memory", 0.0)
C = Cost("c", 1.0, 0.0, 5.0, "memory", 1.0)


def test_a_sequence_adds_everything_and_names_what_binds_most_of_it() -> None:
    total = sequence("all", [A, B, C])
    assert (total.seconds, total.flops, total.bytes) == (4.5, 150.0, 35.0)
    assert total.bound == "memory"
    assert total.measured_share == pytest.approx(3.0 / 4.5)


def test_in_parallel_the_slowest_gives_time_and_bound() -> None:
    total = parallel("all", [A, B])
    assert (total.seconds, total.flops, total.bound, total.measured_share) == (2.0, 150.0, "compute", 1.0)


def test_nothing_takes_no_time() -> None:
    assert sequence("none", []).seconds == 0.0
    assert parallel("none", []).seconds == 0.0
    assert sequence("none", []).measured_share == 1.0


def test_scaling_reaches_every_level() -> None:
    total = sequence("outer", [sequence("inner", [A, B])]).scaled(3)
    assert total.seconds == 10.5
    assert total.find("b").seconds == 4.5
    assert total.find("nothing") is None


def test_text_shows_levels_down_to_a_depth() -> None:
    tree = sequence("outer", [sequence("inner", [A]), B])
    lines = tree.text().splitlines()
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 2, 4, 2]
    assert "2 s" in lines[2]
    assert "compute" in lines[2]
    assert "100% measured" in lines[2]
    assert "57% measured" in lines[0]
    assert tree.text(depth=0).count("\n") == 0
    assert str(tree) == tree.text()
