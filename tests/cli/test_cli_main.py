"""The command line in a process of its own: exit codes, streams, no traceback, nothing heavy imported."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rpeg
import rpeg.cli
from rpeg.cli import main

HEAVY = ("torch", "ray", "transformers", "numpy", "pydantic", "yaml", "rich")


def run(*arguments: str, code: int) -> subprocess.CompletedProcess[str]:
    root = Path(rpeg.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "rpeg.cli.main", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_version() -> None:
    assert run("--version", code=0).stdout == f"rpeg {rpeg.__version__}\n"


def test_help_lists_every_command_with_a_line() -> None:
    text = CliRunner().invoke(main.make_app(), ["--help"]).output
    for module in main.commands():
        assert module.__name__.rpartition(".")[2].replace("_", "-") in text
        assert (module.command.__doc__ or "").strip()


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from rpeg.cli import main; main.make_app(); "
        f"print(sorted(set({HEAVY}) & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(rpeg.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("name: [\n", "is not valid YAML"),
        ("name: a\nstepz: 3\n", "Did you mean 'steps'?"),
    ],
)
def test_broken_job_exits_2_without_traceback(text: str, says: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(text)
    done = run("check", str(job), code=2)
    assert done.stdout == ""
    assert done.stderr.startswith(f"rpeg: {job}")
    assert says in done.stderr


USAGE = [(["chekc"], "chekc"), (["init", "--forc"], "--forc"), (["check"], "JOB")]


@pytest.mark.parametrize(("arguments", "says"), USAGE)
def test_usage_errors_exit_2(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(main.make_app(), arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_interruption_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    module = importlib.import_module("rpeg.cli.init")
    monkeypatch.setattr(module, "command", interrupted)
    assert CliRunner().invoke(main.make_app(), ["init"]).exit_code == 130


def test_every_module_is_a_command() -> None:
    names = {info.name for info in pkgutil.iter_modules(rpeg.cli.__path__) if not info.name.startswith("_")}
    assert {module.__name__.rpartition(".")[2] for module in main.commands()} == names - {"main"}


def test_what_training_needs_is_named_where_it_is_missing() -> None:
    root = Path(rpeg.__file__).parents[1]
    code = "import sys; sys.modules['torch'] = None; from rpeg.cli.main import main; main()"
    job = Path(__file__).parents[2] / "examples" / "ppo.yaml"
    command = [sys.executable, "-c", code, "train", str(job)]
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == "rpeg: this needs torch, which is not installed: pip install 'rpeg[train]'\n"
