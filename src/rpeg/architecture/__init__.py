"""Shapes of models: `Architecture`, read from a Hugging Face `config.json`."""

from rpeg.architecture.huggingface import FAMILIES, from_config, read, to_config
from rpeg.architecture.model import Architecture, Head

__all__ = ["FAMILIES", "Architecture", "Head", "from_config", "read", "to_config"]
