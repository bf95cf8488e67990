"""Where workers load the job's models from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from rpeg.backends.models import convert_gguf
from rpeg.ir import Graph
from rpeg.job import Job, ModelSource
from rpeg.job.cache import cache_directory


def model_files(job: Job, graph: Graph) -> Mapping[str, str]:
    """A directory (or Hugging Face id) for each model of the graph.

    A GGUF file is converted once, into the user's cache: reading one takes a worker many times as long.
    """
    sources = {model.name: job.models.source(model.name) for model in graph.models}
    return {
        name: _converted(source) if source.gguf_file else source.pretrained
        for name, source in sources.items()
    }


def _converted(source: ModelSource) -> str:
    assert source.directory is not None
    assert source.gguf_file is not None
    file = source.directory / source.gguf_file
    stamp = f"{file}:{file.stat().st_size}:{file.stat().st_mtime_ns}"
    name = hashlib.blake2b(stamp.encode(), digest_size=8).hexdigest()
    target = cache_directory() / "models" / f"{file.stem}-{name}"
    target.parent.mkdir(parents=True, exist_ok=True)
    convert_gguf(str(source.directory), source.gguf_file, str(target))
    return str(target)
