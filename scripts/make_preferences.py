"""Write preference pairs for the bundled arithmetic task: what the bundled model answers, a right answer against a wrong.

    python scripts/make_preferences.py

Each line of `preferences.jsonl` and `preferences_heldout.jsonl` is `{"prompt": "36 + 57 =", "chosen": "6+7=13;93",
"rejected": "~90"}`: both responses were sampled from the model, and the verifier `numeric` says which is right. A problem
whose samples are all right or all wrong gives no pair. A second pair of each such problem sets the right response against
itself with a wrong digit in its result, a third against the right response to a problem that differs in one digit: a
reward model that has not seen these gives in to fluent mistakes. The same seed writes the same bytes on the same machine.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import torch

from rpeg.backends.data import load_tokenizer
from rpeg.backends.generation.protocol import Request, Sampling, to_samples
from rpeg.backends.generation.slots import SlotEngine
from rpeg.backends.models import load_model
from rpeg.backends.reward.verifiers.numeric import reward
from rpeg.job import resolve_model
from rpeg.job.records import Record, read_records
from rpeg.runtime.hosting import decode

ASSETS = Path(__file__).resolve().parents[1] / "src/rpeg/assets/chain_sum"
MAX_RESPONSE, MAX_LENGTH, SLOTS = 22, 40, 128


def answers(
    records: tuple[Record, ...], model: str, samples: int, seed: int
) -> Iterator[tuple[Record, list[str]]]:
    """Each record with `samples` responses; cut ones are left out."""
    source = resolve_model(model)
    tokenizer = load_tokenizer(source)
    policy = load_model(source.pretrained, heads=("lm",), dtype=torch.float32)
    engine = SlotEngine(
        policy.hf,
        pad_token_id=tokenizer.pad_token_id,
        slots=SLOTS,
        device=torch.device("cpu"),
        max_length=MAX_LENGTH,
    )
    requests = [
        Request(record.index * samples + k, record.index, tuple(tokenizer(record.prompt)["input_ids"]))
        for record in records
        for k in range(samples)
    ]
    sampling = Sampling(max_new_tokens=MAX_RESPONSE, stop_token_ids=(tokenizer.eos_token_id,))
    found = to_samples(engine.generate(requests, sampling, seed=seed, version=0))
    texts = decode(found, tokenizer)
    for record in records:
        rows = range(record.index * samples, (record.index + 1) * samples)
        yield record, [texts[row] for row in rows if found.sample["finish"][row]]


def pairs(answered: Iterator[tuple[Record, list[str]]]) -> Iterator[dict[str, str]]:
    """The first right response to each problem against its first wrong one."""
    for record, responses in answered:
        by_score: dict[float, str] = {}
        for response in responses:
            by_score.setdefault(reward(record.prompt, response, record.answer), response)
        if len(by_score) == 2:
            yield {"prompt": record.prompt, "chosen": by_score[1.0], "rejected": by_score[0.0]}


def near_misses(rows: list[dict[str, str]], seed: int) -> Iterator[dict[str, str]]:
    """Each right response against itself with one digit of its result changed: form alone does not tell them apart."""
    rng = random.Random(seed)
    for row in rows:
        head, digits = re.fullmatch(r"(.*?)([0-9]+)", row["chosen"]).groups()  # type: ignore[union-attr]
        at = rng.randrange(len(digits))
        other = rng.choice([digit for digit in "0123456789" if digit != digits[at]])
        yield {**row, "rejected": f"{head}{digits[:at]}{other}{digits[at + 1 :]}"}


def of_neighbours(rows: list[dict[str, str]], seed: int) -> Iterator[dict[str, str]]:
    """Each right response against that to a problem that differs in one digit: nor does consistent working."""
    rng = random.Random(seed)
    chosen = {row["prompt"]: row["chosen"] for row in rows}
    for prompt, right in chosen.items():
        others = [
            other
            for at, old in enumerate(prompt)
            if old.isdigit()
            for digit in "0123456789"
            if (other := f"{prompt[:at]}{digit}{prompt[at + 1 :]}") in chosen and other != prompt
        ]
        if others:
            yield {"prompt": prompt, "chosen": right, "rejected": chosen[rng.choice(others)]}


def main() -> None:
    """Sample, compare, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ASSETS)
    parser.add_argument("--model", default="bundled:tiny")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for source, name in (("train", "preferences"), ("heldout", "preferences_heldout")):
        records = read_records(f"bundled:chain_sum/{source}.jsonl")
        rows = list(pairs(answers(records, args.model, args.samples, args.seed)))
        rows += [*near_misses(rows, args.seed), *of_neighbours(rows, args.seed)]
        path = args.out / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        print(f"{path}: {len(rows)} pairs of {len(records)} problems")


if __name__ == "__main__":
    main()
