"""What a span will say besides its times."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Notes:
    """Filled in while an item runs. reads, makes: versions by model. digests: of their bytes, by `model@version`."""

    reads: dict[str, int] = field(default_factory=dict)
    makes: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    tokens: int = 0
