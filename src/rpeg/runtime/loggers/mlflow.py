"""MLflow: to MLFLOW_TRACKING_URI where that is set, else to RUN/mlflow.db on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpeg.job import Job

PACKAGE = "mlflow"
_FORBIDDEN = str.maketrans({"@": "_at_"})  # MLflow's names know letters, digits and _ - . space : /


class _MLflow:
    def __init__(self, mlflow: Any) -> None:
        self._mlflow = mlflow

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        named = {name.translate(_FORBIDDEN): value for name, value in metrics.items()}
        self._mlflow.log_metrics(named, step=step)

    def close(self) -> None:
        self._mlflow.end_run()


def open_logger(job: Job, run: Path, first_step: int) -> _MLflow:
    """A run of the job's name; a resumed one goes on. (mlflow.org/docs/latest/python_api/mlflow.html)"""
    import mlflow

    if not os.environ.get("MLFLOW_TRACKING_URI"):
        mlflow.set_tracking_uri(f"sqlite:///{(run / 'mlflow.db').absolute()}")
    mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "rpeg"))
    kept = run / "mlflow-id"
    before = kept.read_text().strip() if kept.exists() else None
    active = mlflow.start_run(run_id=before, run_name=None if before else job.name)
    kept.write_text(active.info.run_id)
    return _MLflow(mlflow)
