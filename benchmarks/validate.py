"""How far is the performance model off, on measurements that others published? A summary of `rpeg validate`.

    python benchmarks/validate.py DATA [DATA ...] [--out benchmarks/results/validate.json]

Keeps what documents quote: figures for each source and kind, reasons for what was not predicted, and a digest of the
records, so that one sees which data they rest on. Then run scripts/document_model.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from rpeg.validation import Located, evaluate, read_records, summarise

OUT = Path(__file__).resolve().parent / "results" / "validate.json"
DIGITS = 4
REASONS = 5  # kept of each kind


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
    kept = {key: full[key] for key in ("sources", "overall", "core", "suspect")}
    return _rounded({"records": len(records), "digest": digest(records), **kept, "unpredicted": reasons})


def digest(records: tuple[Located, ...]) -> str:
    """Of all records, whatever their order and files."""
    lines = sorted(json.dumps(row.record, sort_keys=True) for row in records)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


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
    text = json.dumps(result, indent=None, ensure_ascii=False)
    options.out.write_text(text.replace('}, "', '},\n"') + "\n", encoding="utf-8")
    for kind, row in result["core"].items():
        print(f"{kind:<14} {row['predicted']:>5} of {row['count']:>5} core records, MAPE {row['mape']}")


if __name__ == "__main__":
    main()
