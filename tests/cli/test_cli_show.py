"""`rpeg show`: every thing that RPEG knows has a line, and every number of one its source."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from rpeg.cli.main import make_app
from rpeg.report import shown


@pytest.mark.parametrize("topic", ["kinds", "kernels", "systems", "models", "stacks"])
def test_the_list_has_a_line_for_each(topic: str) -> None:
    result = CliRunner().invoke(make_app(), ["show", topic])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == list(shown.known(topic))


@pytest.mark.parametrize("topic", ["kinds", "systems", "stacks"])
def test_every_number_of_hardware_and_software_has_a_source(topic: str) -> None:
    for name in shown.known(topic):
        lines = shown.lines(topic, name)
        for line, after in zip(lines[1:], [*lines[2:], ""], strict=True):
            alone = line.startswith(("  peak_flops", "  host_memory", "  host_slots"))
            assert line.startswith("      ") or alone or after.startswith("      "), (name, line)
            assert line.strip(), name


def test_a_model_shows_its_published_size_and_where_it_is_from() -> None:
    text = "\n".join(shown.lines("models", "meta-llama/Llama-3.1-8B-Instruct"))
    assert "8,030,261,248" in text  # the model's card: 8.03B
    assert "https://" in text


def test_kernels_say_whether_they_were_measured_on_the_device_or_stand_in() -> None:
    assert "measured on it" in shown.lines("kernels", "H100")[1]
    assert "stand in" in shown.lines("kernels", "GH200")[1]
    assert "h200" in shown.lines("kernels", "GH200")[1]
    assert "nothing was measured" in shown.lines("kernels", "V100")[1]
    assert any(line.startswith("  gemm bfloat16") for line in shown.lines("kernels", "H100"))
    assert any("all_reduce" in line for line in shown.lines("kernels", "H100"))


def test_spellings_of_kinds_are_understood() -> None:
    assert shown.lines("kinds", "NVIDIA H100-SXM5-80GB")[0] == "h100-sxm"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kind"], "Did you mean 'kinds'"),
        (["kinds", "h101"], "h100"),
        (["systems", "dgx-h10"], "dgx-h100"),
        (["models", "Qwen3-9B"], "Qwen3-8B"),
        (["stacks", "vlm"], "vllm"),
    ],
)
def test_an_unknown_name_is_told_the_nearest(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(make_app(), ["show", *arguments])
    assert result.exit_code == 2
    assert says in result.output
