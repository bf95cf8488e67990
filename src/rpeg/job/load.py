"""Reading and writing job files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from rpeg.errors import JobError
from rpeg.job import document, hardware, models, paths, rules, sources
from rpeg.job.algorithm import schema_of
from rpeg.job.problems import Problem, section_of, stop, translate
from rpeg.job.rewards import Reward
from rpeg.job.schema import Job, ModelChoice, Models
from rpeg.job.wishes import StageLayout


def load_job(path: str | Path) -> Job:
    """Read, check against the schema, then against every rule.

    Relative models, data and `import_from` start at the job file, `output` where the program was started. The job
    that comes back holds absolute paths. JobError lists all problems at once.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise JobError(
            f"{path}: there is no such file. `rpeg init {path}` writes a commented job file."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path}: cannot be read as text: {error}") from None
    return parse_job(text, str(path), file.absolute().parent)


def parse_job(text: str, file: str = "job.yaml", base_dir: str | Path = ".") -> Job:
    """As `load_job`, from text; `file` is how messages call it."""
    parsed = document.parse(text, file)
    data = hardware.for_planning(parsed.data)
    try:
        job = Job.model_validate(data)
    except ValidationError as error:
        found = translate(error, partial(_section, data))
    else:
        job = located(job, Path(base_dir))
        found = rules.problems(job)
    if found:
        raise stop(file, [_as_spelt(problem, data).located(parsed.lines) for problem in found])
    return job


def dump_job(job: Job) -> str:
    """YAML that `parse_job` reads back to an equal job, from any directory."""
    return yaml.safe_dump(job.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def located(job: Job, base_dir: Path) -> Job:
    """The same job with absolute paths."""
    own = {role: getattr(job.models, role) for role in Models.model_fields}
    chosen = {role: c and ModelChoice(path=_model_path(c.path, base_dir)) for role, c in own.items()}
    files = {name: _data_path(getattr(job.data, name), base_dir) for name in ("train", "heldout")}
    return job.model_copy(
        update={
            "models": job.models.model_copy(update=chosen),
            "data": job.data.model_copy(update=files),
            "reward": _rewards(job.reward, base_dir),
            "evaluation": job.evaluation.model_copy(
                update={"reward": job.evaluation.reward and _rewards(job.evaluation.reward, base_dir)}
            ),
            "selection": job.selection.model_copy(
                update={"import_from": paths.absolute(job.selection.import_from, base_dir)}
            ),
            "tools": job.tools
            and job.tools.model_copy(update={"import_from": paths.absolute(job.tools.import_from, base_dir)}),
            "cluster": paths.absolute(job.cluster, base_dir) if isinstance(job.cluster, str) else job.cluster,
            "output": paths.absolute(job.output, Path()),
        }
    )


def _rewards(rewards: Iterable[Reward], base_dir: Path) -> tuple[Reward, ...]:
    return tuple(
        reward.model_copy(update={"import_from": paths.absolute(reward.import_from, base_dir)})
        for reward in rewards
    )


def _section(data: dict[str, Any], path: tuple[str, ...]) -> type[BaseModel] | None:
    """The schema at a key path; that of the algorithm follows its name."""
    if path == ("algorithm",):
        return schema_of(data["algorithm"])
    if path[:2] == ("plan", "layouts") and len(path) == 3:  # a stage's name
        return StageLayout
    if path[-2:-1] == ("reward",):  # an index
        return Reward
    return section_of(Job, path)


def _as_spelt(problem: Problem, data: dict[str, Any]) -> Problem:
    """A single reward is a list of one inside; the user wrote no index."""
    key = problem.key
    for at in range(1, len(key)):
        above: Any = data
        for name in key[:at]:
            above = above.get(name) if isinstance(above, Mapping) else None
        if key[at - 1] == "reward" and key[at] == "0" and isinstance(above, Mapping):
            return replace(problem, key=(*key[:at], *key[at + 1 :]))
    return problem


def _model_path(path: str, base_dir: Path) -> str:
    return paths.absolute(path, base_dir) if models.is_local(path, base_dir) else path


def _data_path(path: str | None, base_dir: Path) -> str | None:
    return path if not path or path.startswith(sources.PREFIXES) else paths.absolute(path, base_dir)
