"""Parts of a layer's feed-forward: dense, or routed to experts."""

from __future__ import annotations

from rpeg.architecture.model import Layer
from rpeg.cost.kernels import Amount, Timed
from rpeg.cost.kernels.timed import largest
from rpeg.cost.network import exchange_seconds
from rpeg.cost.training.mixers import residual
from rpeg.cost.training.parts import NOTHING, Part, Setting, bound_of, linear, passes, sustained, times


def feed_forward_parts(setting: Setting, layer: Layer) -> list[Part]:
    """What follows the mixer, with the norm before and the residual after it."""
    if layer.feed_forward == "none":
        return []
    if layer.feed_forward == "moe":
        return [residual(setting), *_routed(setting)]
    a = setting.architecture
    return [residual(setting), *_dense(setting, "", a.ffn, a.gated)]


def _dense(setting: Setting, prefix: str, ffn: int, gated: bool) -> list[Part]:
    hidden, tp = setting.architecture.hidden, setting.execution.parallelism.tp
    inner, m, matrices = -(-ffn // tp), setting.tokens, 2 if gated else 1
    return [
        linear(setting, f"{prefix}up", m, matrices * inner, hidden, selective=setting.repeated_products),
        passes(setting, f"{prefix}activation", m * inner, matrices + 1.0, 2.0 * matrices + 1.0),
        linear(setting, f"{prefix}down", m, hidden, inner, selective=setting.repeated_products),
    ]


def _routed(setting: Setting) -> list[Part]:
    """Router, dispatch, experts, combination, and the experts that every token passes.

    Expert-parallel ranks share tensor-parallel ones, so each routes its own part of the tokens.
    """
    a, layout = setting.architecture, setting.execution.parallelism
    experts = a.experts
    assert experts is not None
    mine = setting.tokens / layout.tp
    copies = mine * experts.active
    width = experts.latent or a.hidden
    parts = [linear(setting, "router", mine, experts.count, a.hidden, setting.wide)]
    if experts.latent:
        parts += [
            linear(setting, "latent down", mine, experts.latent, a.hidden),
            linear(setting, "latent up", mine, a.hidden, experts.latent),
        ]
    # Rows are gathered in the experts' order and scattered back: read and write of each copy, twice.
    parts.append(passes(setting, "permutation", copies * width, 4.0, 5.0))
    if layout.ep > 1:
        parts.append(_exchanged(setting, mine * width * setting.activation_bytes, experts.active))
    parts += _experts(setting, copies * setting.execution.imbalance, width)
    if experts.shared_ffn:
        parts += _dense(setting, "shared ", experts.shared_ffn, experts.gated)
    return parts


def _exchanged(setting: Setting, copy_bytes: Amount, copies: int) -> Part:
    """Tokens go to their experts and back. copy_bytes: of one copy of each of this rank's tokens.

    A token goes once to each rank that has experts of it, and crosses the network once for each node that has (DeepEP
    and HybridEP, which most stacks use since 2025): of k copies over n places n (1 − (1 − 1/n)^k) differ, where experts
    are chosen evenly.
    """
    ep, machine = setting.execution.parallelism.ep, setting.machine
    nodes = ep / min(ep, machine.fabric.devices_per_node)
    sent, crossing = _places(ep, copies), _places(nodes, copies)
    seconds = exchange_seconds(
        copy_bytes * sent,
        ep,
        machine,
        imbalance=setting.execution.imbalance,
        nodes_per_token=crossing,
        copies=sent,
    )
    both_ways = Timed(2.0 * seconds, 0.0, 2.0 * copy_bytes * sent)
    return Part("expert parallel", both_ways, both_ways, "network")


def _places(places: float, copies: int) -> float:
    """Expected number of different places among `copies` choices."""
    return float(places * (1.0 - (1.0 - 1.0 / places) ** copies))


def _experts(setting: Setting, rows: Amount, width: int) -> list[Part]:
    """Grouped products over the experts that a rank holds."""
    experts, layout = setting.architecture.experts, setting.execution.parallelism
    assert experts is not None
    held, matrices = max(1, experts.count // layout.ep), 2 if experts.gated else 1
    return [
        _grouped(setting, "experts up", rows, held, matrices * experts.ffn, width),
        passes(setting, "experts activation", rows * experts.ffn, matrices + 1.0, 2.0 * matrices + 1.0),
        _grouped(setting, "experts down", rows, held, width, experts.ffn),
    ]


def _grouped(setting: Setting, name: str, rows: Amount, groups: int, n: int, k: int) -> Part:
    """A product for each expert that the rank holds, at the shape that one expert has.

    Training stacks run them as grouped or concurrent library products (TransformerEngine's GroupedLinear), which
    take somewhat longer than as many single ones; tables of grouped kernels are of inference engines.
    """
    kernels, dtype = setting.kernels, setting.execution.precision.expert_compute
    m, many = largest(1.0, rows / groups), groups * setting.traits.grouped_products
    forward = times(kernels.gemm(m, n, k, dtype), many)
    if not setting.trains:
        backward = NOTHING
    elif setting.execution.lora_rank is None:
        backward = times(kernels.gemm_backward(m, n, k, dtype, setting.accumulate), many)
    else:
        backward = times(kernels.gemm(m, k, n, dtype), many)
    forward, backward = sustained(setting, forward, dtype), sustained(setting, backward, dtype)
    return Part(name, forward, backward, bound_of(setting, forward, dtype))
