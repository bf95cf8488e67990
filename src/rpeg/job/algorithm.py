"""The `algorithm` section: a name, and hyperparameters checked against that algorithm's `Hyper` dataclass."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    create_model,
    field_validator,
)

from rpeg import algorithms
from rpeg.errors import InputError
from rpeg.job.fields import Flag, Number, Text, Whole
from rpeg.job.problems import sentence, show


@dataclass(frozen=True)
class Algorithm:
    """name: a file of `rpeg.algorithms`. hyper: an instance of that file's `Hyper`."""

    name: str
    hyper: Any

    def graph(self) -> Any:
        """The algorithm's `Graph` under these hyperparameters."""
        return algorithms.load(self.name).graph(self.hyper)


def parse(value: object) -> Algorithm:
    """From `{name: ppo, clip: 0.2, …}`. Raises pydantic's ValidationError (key by key) or ValueError."""
    if isinstance(value, Algorithm):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"is {show(value)}, must be keys with values: name and hyperparameters.")
    name = _Named.model_validate({k: v for k, v in value.items() if k == "name"}).name
    model = hyper_model(name)
    values = model.model_validate(dict(value)).model_dump(exclude={"name"})
    try:
        return Algorithm(name, algorithms.load(name).Hyper(**values))
    except InputError as error:
        raise ValueError(sentence(error)) from None


def flat(algorithm: Algorithm) -> dict[str, Any]:
    """The inverse of `parse`."""
    return {"name": algorithm.name, **asdict(algorithm.hyper)}


@cache
def hyper_model(name: str) -> type[BaseModel]:
    """A pydantic model with the fields, types and defaults of the algorithm's `Hyper`, and `name`."""
    hyper = algorithms.load(name).Hyper
    hints = get_type_hints(hyper)
    entries: dict[str, Any] = {f.name: (_checked(hints[f.name]), _default(f)) for f in fields(hyper)}
    config = ConfigDict(extra="forbid", frozen=True)
    return create_model(f"Hyper[{name}]", __config__=config, name=(Text, ...), **entries)


def schema_of(section: Mapping[str, object]) -> type[BaseModel]:
    """What may stand in an `algorithm` section: only a name as long as that names no algorithm."""
    name = section.get("name")
    return hyper_model(str(name)) if name in algorithms.names() else _Named


class _Named(BaseModel):
    name: Text = Field(description=f"one of {', '.join(algorithms.names())}")

    @field_validator("name")
    @classmethod
    def _exists(cls, value: str) -> str:
        try:
            algorithms.load(value)
        except InputError as error:
            raise ValueError(str(error)) from None
        return value


def _checked(hint: Any) -> Any:
    """The same type, with scalars read by our own rules."""
    if get_origin(hint) in (Union, types.UnionType):
        return Union[tuple(_checked(arg) for arg in get_args(hint))]  # noqa: UP007  (built at run time)
    return {float: Number, int: Whole, bool: Flag, str: Text}.get(hint, hint)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else ...


AlgorithmSection = Annotated[Algorithm, PlainValidator(parse), PlainSerializer(flat, return_type=dict)]
