"""`rpeg calibrate`: measures this machine, for a job's models or kernel by kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ORDER = 25


def command(
    job_file: Annotated[
        Path | None, typer.Argument(metavar="JOB.YAML", help="The job whose models to measure for.")
    ] = None,
    kernels: Annotated[
        bool,
        typer.Option("--kernels", help="Measure single kernels of the device instead; needs no job."),
    ] = False,
    device: Annotated[
        str, typer.Option(help="With --kernels: cpu, cuda, or auto for CUDA where there is one.")
    ] = "auto",
    kind: Annotated[
        str | None, typer.Option(help="With --kernels: the kind of device, where its own name is not known.")
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="With --kernels: measure collectives between so many processes.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="With --kernels: the file to write. Without it the cache, where estimates find it."
        ),
    ] = None,
) -> None:
    """Measure this machine: operations and layers, never a stage or a step of the job to be predicted.

    For a job: ops at its models' shapes through RPEG's own backends. Takes about half a minute and is kept in a
    cache; `rpeg plan` and `rpeg train` do it by themselves when needed.

    With --kernels: matrix products, attention, passes over memory, launches, copies, a layer and collectives of the
    device, as a kernel file like the bundled ones. From then on estimates for this kind of device rest on it instead
    of the bundled tables, as the estimate says; remove the file to go back. $RPEG_KERNELS names a file elsewhere.
    Under torchrun collectives are measured between its processes.

    \b
    Examples:
      rpeg calibrate job.yaml
      rpeg calibrate --kernels
      rpeg calibrate --kernels --device cuda --processes 8
      rpeg calibrate --kernels --out h100.json        (then: RPEG_KERNELS=h100.json rpeg plan …)
    """
    from rpeg.errors import InputError

    if kernels:
        if job_file is not None:
            raise InputError(
                f"--kernels measures the device and takes no job: leave out {job_file} or --kernels"
            )
        _kernels(device, kind, processes, out)
    elif job_file is None:
        raise InputError(
            "rpeg calibrate needs a job to measure for, or --kernels to measure the device itself"
        )
    else:
        _job(job_file)


def _job(job_file: Path) -> None:
    from rpeg.cli._planning import measure_for
    from rpeg.job import load_job

    calibration = measure_for(load_job(job_file), lambda line: typer.echo(line))
    points = sum(len(grid.seconds) for grid in calibration.tables.values())
    typer.echo(
        f"{calibration.machine}, {calibration.dtype}: {points} points in {len(calibration.tables)} tables:"
    )
    for op, grid in sorted(calibration.tables.items()):
        typer.echo(f"  {op:<24} over {' × '.join(grid.axes)}")


def _kernels(device: str, kind: str | None, processes: int, out: Path | None) -> None:
    import importlib.util

    from rpeg.errors import InputError

    if importlib.util.find_spec("torch") is None:
        raise InputError("measuring needs torch, which is not installed: pip install 'rpeg[train]'")
    from rpeg.calibrate import accelerator
    from rpeg.cost.kernels.sources import user_files

    where = accelerator.device_of(device)
    of = accelerator.kind_of(where, kind)
    path = out or user_files(of.name)[-1]
    _check_writable(path)
    typer.echo(f"Measuring kernels of {where} as {of.name} …")
    file = accelerator.measure_kernels(
        where, of, processes=processes, say=lambda line: typer.echo(f"  {line}")
    )
    if file is None:  # another process of the launcher writes
        return
    path.write_text(file.dumps(), encoding="utf-8")
    for line in _summary(file):
        typer.echo(line)
    typer.echo(f"Written to {path}.")


def _check_writable(path: Path) -> None:
    """Before the work, not after it. InputError where the file cannot be written."""
    from rpeg.errors import InputError

    existed = path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a", encoding="utf-8").close()
        if not existed:
            path.unlink(missing_ok=True)  # processes of a launcher all come here
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; name another file with --out") from None


def _summary(file: object) -> list[str]:
    """Best efficiency of each table, launches and the layer."""
    import math

    from rpeg.cost.kernels.files import KernelFile
    from rpeg.units import seconds_text

    assert isinstance(file, KernelFile)
    lines = []
    for table in file.tables:
        name = f"{table.op} {table.dtype}" + (f" × {table.head_dim}" if table.head_dim else "")
        best = math.exp(max(table.logs))
        lines.append(f"  {name:<32} {len(table.logs):>4} shapes, at best {best:.0%} of the advertised peak")
    seen = file.observations
    lines.append(f"  {'launch of a kernel':<32} {seconds_text(seen['launch_seconds'])}")
    for layer in seen["layers"]:
        forward, both = layer["forward_seconds"], layer["forward_backward_seconds"]
        lines.append(
            f"  {'layer of ' + str(layer['hidden']) + ', ' + str(layer['tokens']) + ' tokens':<32} "
            f"{seconds_text(forward)} forward, {seconds_text(both)} with backward"
        )
    for curve in seen["collectives"]:
        name = f"{curve['collective']}, {curve['ranks']} × {curve['library']}"
        lines.append(
            f"  {name:<32} {seconds_text(curve['seconds'][-1])} for {curve['bytes'][-1] / 2**20:.0f} MiB"
        )
    return lines
