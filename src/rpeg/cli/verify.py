"""`rpeg verify`: does a run's trace prove that it did what its plan says?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

ORDER = 50


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory, or one trace-N in it.")],
    most: Annotated[
        int, typer.Option("--most", min=1, help="Counterexamples to show of each broken property.")
    ] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the proof as JSON.")] = False,
) -> None:
    """Prove from a run's trace that it did what its plan says, or show where not.

    Placement, dependencies, lane order, clocks, versions and digests of weights, the ledger of samples, memory; over
    all stretches of a run that was resumed. Exit code 1 when something is not proven.

    \b
    Examples:
      rpeg verify runs/ppo
      rpeg verify runs/ppo/trace-2           one stretch alone
    """
    from dataclasses import asdict

    from rpeg.errors import VerificationError
    from rpeg.trace import read_traces
    from rpeg.verify import prove_run

    traces = read_traces(run)
    proof = prove_run(traces)
    if as_json:
        typer.echo(
            json.dumps({"proven": proof.holds, **asdict(proof), "counts": dict(proof.counts)}, indent=2)
        )
        raise typer.Exit(0 if proof.holds else 1)
    if not proof.holds:
        raise VerificationError(f"{run}: {proof.text(most)}")
    if not any(trace.entries for trace in traces):
        raise VerificationError(f"{run}: nothing happened in this run, so nothing is proven")
    typer.echo(f"{run}: {proof.text()}")
    for number, trace in enumerate(traces, 1):
        if not trace.complete:
            which = f"stretch {number}" if len(traces) > 1 else "the run"
            typer.echo(f"{which} was cut short: what it contains is proven, not that it is all")
