"""How far is the performance model off, on measurements that others published? A summary of `rpeg validate`.

    python benchmarks/validate.py DATA [DATA ...] [--out benchmarks/results/validate.json]

Keeps what documents quote: figures for each source and kind, the main reasons for what was not predicted, and digests of
the records and of the tunables, so that one sees on what they rest. Then run scripts/document_model.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from rpeg.cost.stack import quantities, stacks
from rpeg.validation import Located, evaluate, read_records, summarise

OUT = Path(__file__).resolve().parent / "results" / "validate.json"
DIGITS = 4
REASONS = 5  # kept of each kind
SHORT = ("kind", "count", "predicted", "mape", "median_ape", "p90_ape", "bias", "spearman")  # of a source


def summary_of(records: tuple[Located, ...], broken: tuple[str, ...]) -> dict[str, Any]:
    """The JSON form of a validation, without the single records, rounded."""
    full = summarise(evaluate(records), broken).to_json()
    if full["bugs"]:
        raise SystemExit(f"the model fails on {len(full['bugs'])} records: {full['bugs'][0]}")
    seen: Counter[str] = Counter()
    reasons = []
    for entry in full["unpredicted"]:
        seen[entry["kind"]] += 1
        if seen[entry["kind"]] <= REASONS:
            reasons.append({key: entry[key] for key in ("kind", "reason", "count")})
    sources = {
        name: {key: row[key] for key in SHORT} for name, row in full["sources"].items() if row["predicted"]
    }
    made_of = {
        "records": len(records),
        "records_digest": digest(records),
        "tunables_digest": tunables_digest(),
    }
    kinds = {key: full[key] for key in ("overall", "core", "suspect")}
    return _rounded({**made_of, **kinds, "unpredicted": reasons, "sources": sources})


def tunables_digest() -> str:
    """Of the values of all tunables."""
    found = [quantity for name in ("defaults", *stacks()) for quantity in quantities(name)]
    lines = sorted(f"{q.stack} {q.section} {q.name} {q.value} {sorted(q.by_kind)}" for q in found)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def digest(records: tuple[Located, ...]) -> str:
    """Of all records, whatever their order and files."""
    lines = sorted(json.dumps(row.record, sort_keys=True) for row in records)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _text(result: dict[str, Any]) -> str:
    """As JSON with a line for each group."""
    return "{\n" + ",\n".join(f" {_json(key)}: {_lines(value)}" for key, value in result.items()) + "\n}\n"


def _lines(value: Any) -> str:
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"  {_json(key)}: {_json(entry)}" for key, entry in value.items()) + "\n }"
    if isinstance(value, list):
        return "[\n" + ",\n".join(f"  {_json(entry)}" for entry in value) + "\n ]"
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def main() -> None:
    """Evaluate and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    reading = read_records(options.data)
    result = summary_of(reading.records, reading.broken)
    options.out.write_text(_text(result), encoding="utf-8")
    for kind, row in result["core"].items():
        print(f"{kind:<14} {row['predicted']:>5} of {row['count']:>5} core records, MAPE {row['mape']}")


if __name__ == "__main__":
    main()
