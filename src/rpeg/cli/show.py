"""`rpeg show`: what is known of devices, kernels, systems, models and software, and from where?"""

from __future__ import annotations

from typing import Annotated

import typer

ORDER = 85


def command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="kinds, kernels, systems, models or stacks.")],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One of them, with all its numbers and their sources."),
    ] = None,
) -> None:
    """List device kinds, systems, models or software stacks, or print one with the source of each number.

    kernels: which kernels and collectives were measured for a kind of device, over which shapes, and on what.

    \b
    Examples:
      rpeg show kinds
      rpeg show kinds H100
      rpeg show kernels GH200
      rpeg show systems dgx-h100
      rpeg show models Qwen3-30B-A3B
      rpeg show stacks vllm
    """
    from rpeg.report import shown

    for line in shown.overview(topic) if name is None else shown.lines(topic, name):
        typer.echo(line)
