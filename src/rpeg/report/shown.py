"""What RPEG knows of hardware, models and software, with the source of each number, as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rpeg.architecture import Architecture, library
from rpeg.cluster import device_kinds, kind_named, system, systems
from rpeg.cost.stack import Quantity, quantities, stacks
from rpeg.errors import InputError, nearest
from rpeg.report import kernels_shown
from rpeg.units import bytes_text

_DEFAULTS = "defaults"


def topics() -> tuple[str, ...]:
    """What can be shown."""
    return tuple(_TOPICS)


def known(topic: str) -> tuple[str, ...]:
    """Names of a topic. InputError names the nearest topic where there is none."""
    return _topic(topic)[0]()


def lines(topic: str, name: str) -> list[str]:
    """Everything that is known of one thing, a number and its source a line. InputError where there is none."""
    return list(_topic(topic)[1](name))


def overview(topic: str) -> list[str]:
    """A line for each thing of a topic."""
    return [_topic(topic)[2](name) for name in known(topic)]


def _topic(topic: str) -> tuple[Names, Lines, Line]:
    if topic not in _TOPICS:
        raise InputError(f"there is no '{topic}' to show. {nearest(topic, _TOPICS)}")
    return _TOPICS[topic]


def _kind_lines(name: str) -> Iterator[str]:
    kind = kind_named(name)
    yield kind.name
    sources = dict(kind.sources)
    for field in ("generation", "like", "memory_bytes", "reported_memory_bytes"):
        yield from _sourced(field, getattr(kind, field), sources)
    yield from _sourced("memory_bandwidth_bytes_per_second", kind.memory_bandwidth_bytes_per_second, sources)
    for dtype, peak in kind.peak_flops:
        yield f"  peak_flops.{dtype} = {peak:.4g}"
    yield f"      {sources.get('peak_flops', '')}"
    for field in ("host_bandwidth_bytes_per_second", "nvlink_bandwidth_bytes_per_second", "power_watts"):
        yield from _sourced(field, getattr(kind, field), sources)
    for field in ("multiprocessors", "l2_bytes", "launch_overhead_seconds"):
        yield from _sourced(field, getattr(kind, field), sources)
    yield "  kernels"
    yield f"      {kernels_shown.basis(kind.name)} (rpeg show kernels {kind.name})"


def _sourced(field: str, value: object, sources: Mapping[str, str]) -> Iterator[str]:
    """Fields that a data file leaves out have no line."""
    if field in sources:
        yield f"  {field} = {_number(value)}"
        yield f"      {sources[field]}"


def _kind_line(name: str) -> str:
    kind = kind_named(name)
    peak = kind.peaks.get("bfloat16") or kind.peaks.get("float16") or kind.peak("float32")
    return (
        f"{name:18} {bytes_text(kind.memory_bytes):>9}, {kind.memory_bandwidth_bytes_per_second / 1e12:.3g} TB/s, "
        f"{peak / 1e12:.4g} TFLOP/s"
    )


def _system_lines(name: str) -> Iterator[str]:
    cluster = system(name, 2)
    node = cluster.racks[0].nodes[0]
    yield f"{name}: nodes of {node.devices} × {node.kind.name}"
    yield f"  host_memory_bytes = {node.host_memory_bytes}"
    yield f"  host_slots = {node.host_slots}"
    if node.price_per_hour is not None:
        yield f"  price_per_hour = {node.price_per_hour}"
        yield f"      {node.price_source}"
    for link in (node.link, cluster.racks[0].link, cluster.link):
        rate, latency = link.bandwidth_bytes_per_second, link.latency_seconds
        yield f"  {link.level}: bandwidth_bytes_per_second = {rate:.4g}, latency_seconds = {latency:.3g}"
        yield f"      {link.source}"


def _system_line(name: str) -> str:
    cluster = system(name)
    node = cluster.racks[0].nodes[0]
    inner, outer = (
        node.link.bandwidth_bytes_per_second / 1e9,
        cluster.racks[0].link.bandwidth_bytes_per_second / 1e9,
    )
    return f"{name:22} {node.devices} × {node.kind.name}, {inner:.4g} GB/s in a node, {outer:.4g} GB/s beyond"


def _model_lines(name: str) -> Iterator[str]:
    a = library.named(name)
    yield f"{a.name}: {library.source(a.name)}"
    yield f"  parameters = {a.parameters():,}, of which a token passes {a.active_parameters:,}"
    yield f"  layers = {a.layers}, hidden = {a.hidden}"
    yield f"  heads = {a.heads}, kv_heads = {a.kv_heads}, head_dim = {a.head_dim}"
    yield f"  ffn = {a.ffn}, vocabulary = {a.vocabulary}, context = {a.context}, tied_embeddings = {a.tied_embeddings}"
    for layer, count in a.groups:
        yield f"  {count} layers of {layer.mixer} mixer and {layer.feed_forward} feed-forward"
    for part in (a.experts, a.latent, a.recurrent):
        if part is not None:
            yield f"  {part}"


def _model_line(name: str) -> str:
    a: Architecture = library.named(name)
    return f"{name:34} {a.parameters() / 1e9:8.3g} B parameters, {a.active_parameters / 1e9:.3g} B active"


def _stack_lines(name: str) -> Iterator[str]:
    if name not in stacks():
        raise InputError(f"there is no software stack '{name}'. {nearest(name, stacks())}")
    found = {(q.section, q.name): q for stack in (_DEFAULTS, name) for q in quantities(stack)}
    yield name
    for _, quantity in sorted(found.items()):
        yield from _quantity_lines(quantity)


def _quantity_lines(quantity: Quantity) -> Iterator[str]:
    kinds = "".join(f", {kind}: {_number(value)}" for kind, value in quantity.by_kind)
    yield f"  {quantity.section}.{quantity.name} = {_number(quantity.value)}{kinds}"
    yield f"      {quantity.what}; {quantity.source}"


def _stack_line(name: str) -> str:
    return f"{name:14} {len(quantities(name))} quantities of its own, the others by default"


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


Names = Callable[[], tuple[str, ...]]
Lines = Callable[[str], Iterator[str]]
Line = Callable[[str], str]
_TOPICS: Mapping[str, tuple[Names, Lines, Line]] = {
    "kinds": (device_kinds, _kind_lines, _kind_line),
    "kernels": (kernels_shown.names, kernels_shown.lines, kernels_shown.overview),
    "systems": (systems, _system_lines, _system_line),
    "models": (library.names, _model_lines, _model_line),
    "stacks": (stacks, _stack_lines, _stack_line),
}
