"""What every group of keys of a job file is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of keys: frozen, and closed to keys that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)
