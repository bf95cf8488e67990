"""Shapes of models: `Architecture`, read from a Hugging Face `config.json`."""

from rpeg.architecture.huggingface import FAMILIES, from_config, read, to_config
from rpeg.architecture.layers import Experts, FeedForward, Latent, Layer, Mixer, Recurrent
from rpeg.architecture.model import LAYER_PARTS, Architecture, Head

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
    "from_config",
    "read",
    "to_config",
]
