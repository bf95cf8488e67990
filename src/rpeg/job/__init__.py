"""The job file: what to train, on what, with which permissions.

See `schema` for every key, `load` for reading one, `rules` for what must hold before anything starts.
"""

from rpeg.job.load import dump_job, load_job, parse_job
from rpeg.job.models import ModelSource, resolve_model
from rpeg.job.schema import Job
from rpeg.job.wishes import StageLayout

__all__ = ["Job", "ModelSource", "StageLayout", "dump_job", "load_job", "parse_job", "resolve_model"]
