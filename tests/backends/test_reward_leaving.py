"""A user's function does not outlive the process that asked it, whatever either does."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

PARENT = """
import sys
from rpeg.backends.reward.process import FunctionProcess

function = FunctionProcess("python:endless:reward", sys.argv[1], float(sys.argv[2]))
function.start()
print(function._child.pid, flush=True)
function("a prompt", "a response", "an answer")
"""


@pytest.mark.parametrize(
    ("body", "limit_seconds"),
    [
        ("while True: pass", 60.0),
        # A pattern holds the interpreter: no other thread of it ever runs.
        ("import re; re.match('(a+)+$', 'a' * 60 + 'b')", 1.0),
    ],
    ids=["in Python", "in C"],
)
def test_it_ends_when_its_parent_is_killed(body: str, limit_seconds: float, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(
        f"def reward(prompt, response, answer):\n    {body}\n    return 0.0\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), str(limit_seconds)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    time.sleep(0.3)
    parent.kill()
    parent.wait()
    child.wait(20)
