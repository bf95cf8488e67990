"""The `rpeg` command.

Every module of this package without a leading underscore, but for this one, is a command: its function `command`
becomes `rpeg MODULE`, at the place `ORDER` in the help. Command modules import nothing heavy at their top, so that
`rpeg --help` is quick; what a command needs it imports inside its function.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import rpeg
from rpeg.errors import RpegError

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_OF_TRAINING = frozenset(
    {"torch", "ray", "transformers", "safetensors", "psutil"}
)  # what planning does without
_HELP = """Plans, predicts and runs reinforcement-learning post-training of language models as one graph.

Start with a job file, and see that it says what you mean:

\b
    rpeg init ppo.yaml
    rpeg check ppo.yaml
"""


class _Group(TyperGroup):
    """Errors that RPEG raises on purpose become a message and their exit code; bugs keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RpegError as error:
            typer.echo(f"rpeg: {error}", err=True)
            raise typer.Exit(error.exit_code) from None
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _OF_TRAINING:
                raise
            typer.echo(
                f"rpeg: this needs {package}, which is not installed: pip install 'rpeg[train]'", err=True
            )
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("rpeg: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


def commands() -> list[ModuleType]:
    """The modules of all commands, in the order of the help."""
    package = importlib.import_module("rpeg.cli")
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_")]
    modules = [importlib.import_module(f"rpeg.cli.{name}") for name in names if name != "main"]
    return sorted(modules, key=lambda module: (getattr(module, "ORDER", 99), module.__name__))


def make_app() -> typer.Typer:
    """The application with all commands."""
    app = typer.Typer(
        name="rpeg",
        cls=_Group,
        help=_HELP,
        rich_markup_mode=None,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for module in commands():
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        short = (module.__doc__ or "").strip().partition("\n")[0].partition(": ")[2]
        app.command(name, short_help=short[:1].upper() + short[1:])(module.command)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rpeg {rpeg.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the `rpeg` script. Exits 0, or with the code of the error."""
    make_app()()


if __name__ == "__main__":
    main()
