"""Makes the bundled kernel tables from an unpacked `aiconfigurator-core` wheel.

    python scripts/distil_kernels.py PATH/TO/aiconfigurator_core VERSION [KIND …]

Writes `src/rpeg/cost/data/kernels/<kind>.json`, the same bytes whenever it is run on the same package. Needs pyarrow.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rpeg.cost.kernels.distil import SYSTEMS
from rpeg.cost.kernels.installed import distilled

OUT = Path(__file__).parents[1] / "src" / "rpeg" / "cost" / "data" / "kernels"


def main(package: str, version: str, *kinds: str) -> None:
    """Distils the kinds named, or all that the package has."""
    for kind in kinds or SYSTEMS:
        file = distilled(kind, Path(package) / "systems" / "data", version)
        text = file.dumps()
        (OUT / f"{kind}.json").write_text(text, encoding="utf-8")
        print(f"{kind}: {len(file.tables)} tables, {len(text) / 1e3:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
