"""What an item of a stage reads a model from."""

from __future__ import annotations

from rpeg.errors import RunError
from rpeg.runtime.holdings import Holding, Holdings
from rpeg.runtime.notes import Notes
from rpeg.runtime.work import Work


def read_by(work: Work, holdings: Holdings, model: str, notes: Notes) -> Holding:
    """Noted for the item's span. Raises RunError for a version that the driver did not launch it for."""
    holding = holdings.for_stage(work.item.name, model)
    if holding.trainer.is_resting("weights"):
        raise RunError(f"{work.item} finds {model} at rest in host memory")
    launched = dict(work.versions)
    if model in launched:
        if holding.version != launched[model]:
            raise RunError(
                f"{work.item} was launched for {model}@{launched[model]} and finds @{holding.version}"
            )
        notes.reads[model] = holding.version
        notes.digests[f"{model}@{holding.version}"] = holding.digest
    return holding
