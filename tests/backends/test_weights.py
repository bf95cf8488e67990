"""Publishing, loading in place, digests and the canary."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_cases import tiny_model

from rpeg.backends.boxes import Box, Piece
from rpeg.backends.models import PolicyModel
from rpeg.backends.weights import (
    Published,
    aliases_of,
    canary_logprobs,
    canary_tokens,
    check_canary,
    checksum,
    digest,
    load,
    pieces_of,
    publish,
)
from rpeg.errors import RunError


def published(model: PolicyModel, version: int = 1) -> Published:
    pieces = pieces_of(model)
    return publish(version, pieces, digest(checksum(pieces)), aliases_of(model))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_loads_in_place_bit_for_bit(dtype: torch.dtype, tied: bool) -> None:
    source, target = (tiny_model(("lm", "value"), dtype=dtype, tied=tied, seed=s) for s in (1, 2))
    places = {name: p.data_ptr() for name, p in target.named_parameters()}
    out = published(source)
    assert out.load_into(target) == out.digest
    assert places == {name: p.data_ptr() for name, p in target.named_parameters()}
    for (name, a), (_, b) in zip(source.named_parameters(), target.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    tokens = canary_tokens(61)
    np.testing.assert_array_equal(canary_logprobs(source, tokens), canary_logprobs(target, tokens))


def test_an_engine_holding_the_hugging_face_module_sees_the_weights() -> None:
    source, target = tiny_model(seed=1), tiny_model(seed=2)
    engine = target.hf
    published(source).load_into(engine)
    tokens = canary_tokens(61)
    assert (
        check_canary(canary_logprobs(source, tokens), canary_logprobs(engine, tokens), torch.float64) < 1e-12
    )


def test_a_tied_head_that_became_a_copy_receives_too() -> None:
    source, target = tiny_model(seed=1), tiny_model(seed=2)
    target.hf.lm_head.weight = torch.nn.Parameter(target.hf.lm_head.weight.detach().clone())
    assert len(list(target.hf.parameters())) > len(list(source.hf.parameters()))
    published(source).load_into(target)
    tokens = canary_tokens(61)
    check_canary(canary_logprobs(source, tokens), canary_logprobs(target, tokens), torch.float64)


def test_stale_head_is_caught_by_the_canary() -> None:
    source, target = tiny_model(seed=1), tiny_model(seed=2)
    stale = target.hf.lm_head.weight.detach().clone()
    published(source).load_into(target)
    target.hf.lm_head.weight = torch.nn.Parameter(stale)
    tokens = canary_tokens(61)
    a, b = canary_logprobs(source, tokens), canary_logprobs(target, tokens)
    with pytest.raises(RunError, match=r"trainer and engine differ by .* they give -\d.* and -\d"):
        check_canary(a, b, torch.float32)


def test_stale_value_head_of_a_shared_model_is_caught_too() -> None:
    source, target = (tiny_model(("lm", "value"), seed=s) for s in (1, 2))
    stale = target.value_head.weight.detach().clone()
    published(source).load_into(target)
    tokens = canary_tokens(61)
    check_canary(canary_logprobs(source, tokens), canary_logprobs(target, tokens), torch.float64)
    target.value_head.weight = torch.nn.Parameter(stale)
    with pytest.raises(RunError, match="trainer and engine differ"):
        check_canary(canary_logprobs(source, tokens), canary_logprobs(target, tokens), torch.float64)


def test_canary_refuses_what_is_not_finite() -> None:
    good = np.array([-1.0, -2.0])
    with pytest.raises(RunError, match="nan"):
        check_canary(good, np.array([-1.0, np.nan]), torch.float32)
    with pytest.raises(RunError, match="values on one side"):
        check_canary(good, good[:1], torch.float32)
    assert check_canary(good, good + 1e-5, torch.float32) == pytest.approx(1e-5)


def test_digest_covers_every_bit_its_place_and_its_name() -> None:
    pieces = pieces_of(tiny_model(seed=1))
    whole = checksum(pieces)
    first = pieces[0]
    changed = first.tensor.clone()
    changed.view(torch.uint8)[0, 3] ^= 1
    swapped = first.tensor.flip(0)
    others = [
        replace(first, tensor=changed),
        replace(first, tensor=swapped),
        replace(first, name="other"),
        replace(first, shape=(61, 17)),
    ]
    found = {checksum([other, *pieces[1:]]) for other in others}
    assert len(found - {whole}) == len(others)
    assert whole == checksum(pieces_of(tiny_model(seed=1)))


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    cuts=st.lists(st.tuples(st.integers(0, 2), st.integers(2, 3)), max_size=3),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_parts_have_the_digest_of_the_whole_and_load_as_it(
    shape: tuple[int, ...], cuts: list[tuple[int, int]], dtype: torch.dtype
) -> None:
    """However a parameter is cut, and whatever other cut its receiver has."""
    tensor = torch.randn(shape).to(dtype)
    whole = Piece("w", shape, Box.whole(shape), tensor)
    boxes = [whole.box]
    for dim, ranks in cuts:
        boxes = [b.chunk(dim % len(shape), ranks, i) for b in boxes for i in range(ranks)]
    parts = [Piece("w", shape, box, tensor[box.within(whole.box)]) for box in boxes]
    assert sum(checksum([part]) for part in parts) % 2**64 == checksum([whole])
    contributions = [publish(1, [part], "") for part in parts]
    for box in (whole.box, whole.box.chunk(0, 2, 0), whole.box.chunk(len(shape) - 1, 3, 1)):
        target = Piece("w", shape, box, torch.zeros(box.shape, dtype=dtype))
        load([target], contributions)
        assert torch.equal(target.tensor, tensor[box.within(whole.box)])


def test_a_part_that_is_missing_or_comes_twice_is_refused() -> None:
    pieces = pieces_of(tiny_model(seed=1))
    whole = publish(1, pieces, "")
    halves = [
        publish(1, [replace(p, box=p.box.chunk(0, 2, i), tensor=p.tensor.chunk(2)[i]) for p in pieces], "")
        for i in range(2)
    ]
    load(pieces, halves)
    for wrong in ([halves[0]], [*halves, halves[1]], [whole, whole]):
        with pytest.raises(RunError, match="receive nothing, or not all of themselves once"):
            load(pieces, wrong)


def test_loads_from_a_read_only_buffer() -> None:
    out = published(tiny_model(seed=1))
    flat = out.flat.copy()
    flat.flags.writeable = False
    assert replace(out, flat=flat).load_into(tiny_model(seed=2)) == out.digest


def test_corrupt_bytes_show_in_the_digest() -> None:
    out = published(tiny_model(seed=1))
    flat = out.flat.copy()
    flat[100] ^= 1
    assert replace(out, flat=flat).load_into(tiny_model(seed=2)) != out.digest


def test_every_parameter_receives_exactly_once() -> None:
    both, lm = tiny_model(("lm", "value")), tiny_model(("lm",))
    with pytest.raises(RunError, match=r"2 of its parameters receive nothing, .* \(\['value_head"):
        published(lm).load_into(both)
    with pytest.raises(RunError, match=r"2 published ones find no parameter \(\['value_head"):
        published(both).load_into(lm)
    with pytest.raises(RunError, match=r"float32 there and .* torch\.float64"):
        published(lm).load_into(tiny_model(dtype=torch.float32))


def test_bucket_is_contiguous_and_aligned() -> None:
    out = published(tiny_model(("lm", "value")))
    assert out.flat.dtype == np.uint8
    assert len(out.flat) == out.size_bytes == out.manifest.size_bytes
    assert all(entry.offset_bytes % 64 == 0 for entry in out.manifest.entries)
