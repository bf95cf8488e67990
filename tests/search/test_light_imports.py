"""Planning starts in a blink: it never loads the training stack."""

from __future__ import annotations

import subprocess
import sys


def test_planning_loads_neither_torch_nor_ray() -> None:
    code = (
        "import sys, rpeg.cli.plan, rpeg.cli.explain, rpeg.cli.simulate, rpeg.cli._planning, rpeg.search, rpeg.calibrate,"
        " rpeg.report.plan\n"
        "print(sorted({'torch', 'ray', 'transformers'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
