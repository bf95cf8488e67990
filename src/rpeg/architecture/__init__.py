"""Shapes of models: `Architecture`, read from a Hugging Face `config.json`."""

from rpeg.architecture.families import FAMILIES
from rpeg.architecture.huggingface import config_notes, from_config, read, read_notes
from rpeg.architecture.layers import Experts, FeedForward, Latent, Layer, Mixer, Recurrent
from rpeg.architecture.library import named, names
from rpeg.architecture.model import LAYER_PARTS, Architecture, Head
from rpeg.architecture.shape import from_shape
from rpeg.architecture.writing import to_config

__all__ = [
    "FAMILIES",
    "LAYER_PARTS",
    "Architecture",
    "Experts",
    "FeedForward",
    "Head",
    "Latent",
    "Layer",
    "Mixer",
    "Recurrent",
    "config_notes",
    "from_config",
    "from_shape",
    "named",
    "names",
    "read",
    "read_notes",
    "to_config",
]
