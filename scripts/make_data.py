"""Write the bundled arithmetic task: two-digit additions from reasoning-gym's `chain_sum`.

    python scripts/make_data.py

Each line of `train.jsonl` and `heldout.jsonl` is `{"prompt": "53 + 29 =", "answer": "82"}`. No prompt is in
both files or twice in one. The same seed writes the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import reasoning_gym

BOILERPLATE = "State the final answer to the following arithmetic problem: "
ASSETS = Path(__file__).resolve().parents[1] / "src/rpeg/assets/chain_sum"
Row = dict[str, str]


def additions(seed: int, draws: int = 50_000) -> Iterator[Row]:
    """Distinct additions in the order in which `chain_sum` draws them; its subtractions are passed over."""
    tasks = reasoning_gym.create_dataset(
        "chain_sum", seed=seed, size=draws, min_terms=2, max_terms=2, min_digits=2, max_digits=2
    )
    seen = set()
    for task in tasks:
        prompt = task["question"].removeprefix(BOILERPLATE)
        if " + " in prompt and prompt not in seen:
            seen.add(prompt)
            yield {"prompt": prompt, "answer": task["answer"]}


def write(path: Path, rows: list[Row]) -> None:
    """One JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{path}: {len(rows)} problems")


def main() -> None:
    """Draw, split, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ASSETS)
    parser.add_argument("--train", type=int, default=4_000)
    parser.add_argument("--heldout", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    source = additions(args.seed)
    rows = [row for row, _ in zip(source, range(args.train + args.heldout), strict=False)]
    if len(rows) < args.train + args.heldout:
        raise SystemExit(f"only {len(rows)} distinct additions, {args.train + args.heldout} asked")
    write(args.out / "heldout.jsonl", rows[: args.heldout])
    write(args.out / "train.jsonl", rows[args.heldout :])


if __name__ == "__main__":
    main()
