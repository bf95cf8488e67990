"""Write the generated parts of docs/model.md and README.md, and what the package knows of the model's own error.

    python scripts/document_model.py            after a change of src/rpeg/cost/data/stacks or of the results
    python scripts/document_model.py --check    exits 1 where the document is not what the files say

The tunables come from the stack files, the errors from benchmarks/results/validate.json (`benchmarks/validate.py`).
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rpeg.cost.stack import Quantity, quantities, stacks

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (ROOT / "docs" / "model.md", ROOT / "README.md")
RESULTS = ROOT / "benchmarks" / "results" / "validate.json"
PACKAGED = ROOT / "src" / "rpeg" / "report" / "data" / "model_error.json"
DEFAULT = "defaults"
KINDS = {
    "train": "training step",
    "infer_static": "generation, static batch",
    "infer_loop": "generation, closed loop",
    "memory": "peak memory",
    "real": "ReaL PPO iterations",
    "rl": "RL steps",
    "weightsync": "weight transfer",
}


def updated(text: str) -> str:
    """A document with those generated parts that it has made anew."""
    return _replaced(_replaced(text, "tunables", tunables), "errors", errors)


def tunables() -> str:
    """A row for each quantity of each stack file."""
    lines = ["| quantity | stack | value | what it is | where from |", "|---|---|---|---|---|"]
    found = [quantity for name in (DEFAULT, *stacks()) for quantity in quantities(name)]
    found.sort(key=lambda q: (q.section, q.name, q.stack != DEFAULT, q.stack))
    lines += ["| " + " | ".join(_cells(quantity)) + " |" for quantity in found]
    names = {(q.section, q.name) for q in found}
    numbers = {(q.section, q.name) for q in found if is_number(q.value)}
    what = (
        f"{len(numbers)} numbers and {len(names - numbers)} facts of software (which kernel, which policy)."
    )
    return "\n".join([what, "", *lines])


def is_number(value: object) -> bool:
    """Words and yes or no are facts that one looks up, not quantities that one tunes."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def errors() -> str:
    """A row for each kind: core records, mean of sources, all records."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    head = (
        "| | records | predicted | MAPE | median | p90 | bias | mean of sources | order | all records: MAPE |"
    )
    return "\n".join([head, "|---|" + "---|" * 9, *_error_rows(results), *_fits_rows(results)])


def packaged(_: str) -> str:
    """The errors on core records that reports of plans state, as JSON."""
    core = json.loads(RESULTS.read_text(encoding="utf-8"))["core"]
    found = {
        kind: {
            "what": KINDS[kind],
            "records": row["predicted"],
            "median": row["median_ape"],
            "p90": row["p90_ape"],
            "bias": row["bias"],
        }
        for kind, row in core.items()
    }
    return json.dumps(found, indent=1) + "\n"


def _error_rows(results: dict[str, Any]) -> Iterator[str]:
    for kind, name in KINDS.items():
        core, overall = results["core"].get(kind), results["overall"].get(kind)
        if not overall:
            continue
        row = core or overall
        cells = [name + ("" if core else " (no core records)"), str(row["count"]), str(row["predicted"])]
        cells += [_percent(row[key]) for key in ("mape", "median_ape", "p90_ape")]
        cells += ["–" if row["bias"] is None else f"{row['bias']:+.1%}"]
        cells += [_percent(row["mape_by_source"]), _percent(row["ordered"]), _percent(overall["mape"])]
        yield "| " + " | ".join(cells) + " |"


def _fits_rows(results: dict[str, Any]) -> Iterator[str]:
    fits = results["overall"].get("memory", {}).get("fits")
    if fits:
        ran, oom, crashed = (fits[key] for key in ("ran", "oom", "crashed_or_oom"))
        yield ""
        yield (
            f"Fits into memory, all records: {ran['fits']} of {ran['fits'] + ran['does_not_fit']} settings that ran are "
            f"predicted to fit, {oom['does_not_fit']} of {oom['fits'] + oom['does_not_fit']} confirmed out-of-memory "
            f"settings not to, and {crashed['does_not_fit']} of {crashed['fits'] + crashed['does_not_fit']} settings "
            "that ran out of memory or crashed for another reason."
        )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _cells(quantity: Quantity) -> tuple[str, ...]:
    value = _value(quantity.value)
    for kind, other in quantity.by_kind:
        value += f"; {kind}: {_value(other)}"
    stack = "all others" if quantity.stack == DEFAULT else quantity.stack
    texts = (text.replace("|", "\\|") for text in (quantity.what, quantity.source))
    return f"`{quantity.section}.{quantity.name}`", stack, value, *texts


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _replaced(text: str, part: str, content: Callable[[], str]) -> str:
    begin, end = f"<!-- {part}: generated by scripts/document_model.py -->", f"<!-- end of {part} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n{content()}\n{end}", text)


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 where a document is stale"
    )
    options = parser.parse_args()
    for document, made in (*((path, updated) for path in DOCUMENTS), (PACKAGED, packaged)):
        before = document.read_text(encoding="utf-8") if document.exists() else ""
        after = made(before)
        if options.check and before != after:
            raise SystemExit(f"{document} is not what the files say: run python scripts/document_model.py")
        document.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
