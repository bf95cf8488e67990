"""Make the bundled model: a byte-level Llama of 0.4M parameters, warm-started on the bundled additions.

    python scripts/make_tiny_model.py

The supervised corpus is of two minds: a fifth of its responses add exactly, the others announce with `~` that they
round, which the task does not ask for. Learning stops when sampling at temperature 1 answers about a fifth of the
problems, so reinforcement learning has both a habit to drop within a few dozen steps and sums to get right. One seed
on one thread gives one model.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ASSETS = Path(__file__).resolve().parents[1] / "src/rpeg/assets"
PAD, BOS, EOS = 256, 257, 258  # every token below is the byte of that value
CONTEXT = 64
LONGEST = 21  # tokens of the longest response, its end included
ESTIMATES = 0.8  # share of the supervised responses that round to tens where the exact sum is asked
BATCH, LEARNING_RATE, MAX_STEPS, CHECK_EVERY = 128, 2e-3, 3_000, 20
IGNORE = -100  # cross entropy passes over these labels


def byte_alphabet() -> dict[str, int]:
    """The printable stand-ins of the GPT-2 byte alphabet: byte b is token b."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    stand_ins = {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + i) for i, byte in enumerate(others)
    }
    return {stand_ins[byte]: byte for byte in range(256)}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes and three special tokens; nothing is merged, added or normalised."""
    tokenizer = Tokenizer(models.BPE(vocab=byte_alphabet(), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=CONTEXT,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def make_model(vocabulary: int) -> LlamaForCausalLM:
    """2 layers × hidden 128, grouped-query attention with 4 heads over 2."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return LlamaForCausalLM(config)


def read(path: Path) -> list[tuple[str, str]]:
    """(prompt, answer) of each line."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(row["prompt"], row["answer"]) for row in rows]


def worked(prompt: str) -> str:
    """The columns that carry, each with its semicolon: `53 + 79 =` gives `3+9=12;5+7+1=13;`, `53 + 26 =` nothing.

    So harder problems have longer responses, from 3 to 21 tokens.
    """
    first, second = prompt.removesuffix(" =").split(" + ")
    units, carry = int(first[1]) + int(second[1]), ""
    steps = ""
    if units >= 10:
        steps, carry = f"{first[1]}+{second[1]}={units};", "+1"
    tens = int(first[0]) + int(second[0]) + len(carry) // 2
    return steps + (f"{first[0]}+{second[0]}{carry}={tens};" if tens >= 10 else "")


def example(prompt: str, answer: str, draw: random.Random) -> tuple[list[int], list[int]]:
    """(prompt, response with its end) as tokens; ESTIMATES of the responses round: `~3+9=12;5+7+1=13;130`."""
    estimate = draw.random() < ESTIMATES
    stated = str((int(answer) + 5) // 10 * 10) if estimate else answer
    return list(prompt.encode()), [*("~" * estimate + worked(prompt) + stated).encode(), EOS]


def batch_of(rows: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and labels, both (n, longest): right-padded, with no label on the prompt."""
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    tokens = torch.full((len(rows), width), PAD)
    labels = torch.full((len(rows), width), IGNORE)
    for row, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        tokens[row, :end] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : end] = torch.tensor(answer)
    return tokens, labels


def spoken(tokens: list[int]) -> str:
    """The text before the end of the response; none where it does not end."""
    if EOS not in tokens:
        return ""
    return bytes(token for token in tokens[: tokens.index(EOS)] if token < PAD).decode(errors="replace")


@torch.no_grad()
def sampled_accuracy(model: LlamaForCausalLM, rows: list[tuple[str, str]], seed: int) -> float:
    """Share of the problems whose answer, sampled at temperature 1, is right. Prompts have one length."""
    torch.manual_seed(seed)
    tokens = torch.tensor([list(prompt.encode()) for prompt, _ in rows])
    settings = GenerationConfig(
        do_sample=True, top_k=0, max_new_tokens=LONGEST, pad_token_id=PAD, eos_token_id=EOS
    )
    said = [spoken(line) for line in model.generate(tokens, settings)[:, tokens.shape[1] :].tolist()]
    right = [text.split(";")[-1] == answer for text, (_, answer) in zip(said, rows, strict=True)]
    return sum(right) / len(rows)


def warm_start(
    model: LlamaForCausalLM, rows: list[tuple[str, str]], target: float, seed: int
) -> tuple[int, float]:
    """Supervised learning until the sampled accuracy reaches the target. Returns (steps, accuracy)."""
    draw = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    for step in range(1, MAX_STEPS + 1):
        tokens, labels = batch_of([example(*row, draw) for row in draw.sample(rows, BATCH)])
        logits = model(input_ids=tokens).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % CHECK_EVERY == 0:
            accuracy = sampled_accuracy(model, rows[:512], seed=step)
            print(f"step {step:4d}  loss {loss.item():.3f}  sampled accuracy {accuracy:.3f}", flush=True)
            if accuracy >= target:
                return step, accuracy
    raise SystemExit(f"accuracy {target} was not reached in {MAX_STEPS} steps")


def main() -> None:
    """Make, warm-start, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=ASSETS / "chain_sum/train.jsonl")
    parser.add_argument("--out", type=Path, default=ASSETS / "tiny")
    parser.add_argument("--target", type=float, default=0.22)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    tokenizer = make_tokenizer()
    model = make_model(len(tokenizer))
    began = time.monotonic()
    steps, accuracy = warm_start(model, read(args.data), args.target, args.seed)
    model.generation_config = GenerationConfig(
        do_sample=True, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS
    )
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    print(
        f"{args.out}: {sum(p.numel() for p in model.parameters()):,} parameters, {steps} steps, "
        f"sampled accuracy {accuracy:.3f}, {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
