"""The ledger: every sample of a step is generated, assessed and, where it is not rejected, trained exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rpeg.ir import Kind
from rpeg.plan import Item, ids_to_generate
from rpeg.trace import Span
from rpeg.verify.evidence import Breach, Evidence, Property


def ranks_work_on_one_share(evidence: Evidence) -> Iterator[Breach]:
    """Lanes that hold shards of one model replica tell the same samples, or leave it to one of them."""
    for item in evidence.spans:
        for spans in _ranks(evidence, item):
            told = [span for span in spans if span.ids]
            for span in told[1:]:
                if Counter(span.ids) != Counter(told[0].ids):
                    yield f"{item}: lanes of one rank tell different samples", (told[0], span)


def items_work_on_their_samples(evidence: Evidence) -> Iterator[Breach]:
    """The ranks of an item together work on the samples that its command names, each once."""
    for item, command in evidence.commands.items():
        task = evidence.task(item)
        if task is None:
            continue
        if not task.covers:
            if command.ids:
                yield f"{item} is commanded to work on samples, and has none of its own", (command,)
            continue
        if item not in evidence.finished or item not in evidence.spans:
            continue
        worked, due = Counter(worked_on(evidence, item)), Counter(command.ids)
        if task.hands_over:  # the rest is finished by another item
            due &= Counter(dict.fromkeys(worked, 1))
        if worked != due:
            yield f"{item} {difference(worked, due)}", (command, *evidence.spans[item])


def samples_belong_to_their_step(evidence: Evidence) -> Iterator[Breach]:
    """Or were kept for it by the step before."""
    size = evidence.trace.plan.workload.asked
    for span in evidence.trace.spans:
        first = span.item.step * size
        task, kept = evidence.task(span.item), evidence.kept_for(span.item.step)
        known = set(range(first - size, first)) if kept is None else kept
        beyond = [i for i in span.ids if not first <= i < first + size and i not in known]
        if beyond and task is not None and task.covers:
            yield (
                f"{span.item} worked on sample {beyond[0]}; its step's samples are {first} to {first + size - 1}",
                (span,),
            )


def tokens_are_those_of_the_samples(evidence: Evidence) -> Iterator[Breach]:
    """A sample has at least one token, and those that work on the same samples of a step work on as many tokens.

    A simulated or fake generator counts the responses alone, and its readers the prompts too. Of what works on no
    samples only evaluation has tokens.
    """
    simulated = evidence.trace.source != "real"
    first: dict[tuple[int, str, tuple[int, ...]], Span] = {}
    graph = evidence.trace.plan.graph
    spans = sorted(evidence.trace.spans, key=lambda span: len(graph.generators_of(span.item.name)))
    for span in spans:
        generates = evidence.kind(span.item) is Kind.GENERATE
        task = evidence.task(span.item)
        idle = task is not None and not task.covers and not generates
        if span.tokens < len(span.ids) or (span.tokens and idle):
            yield f"{span.item} worked on {span.tokens} tokens of {len(span.ids)} samples", (span,)
        if span.ids and not (simulated and generates):
            sources = graph.generators_of(span.item.name) or ("",)
            keys = [(span.item.step, source, tuple(sorted(span.ids))) for source in sources]
            others = [first.get(key, span) for key in keys]
            if len(keys) == 1:  # of several generators' samples it may count the ones or the others
                first.setdefault(keys[0], span)
            if span.tokens not in (other.tokens for other in others):
                yield (
                    f"{span.item} worked on {span.tokens} tokens of the samples of which {others[0].item} had "
                    f"{others[0].tokens}",
                    (others[0], span),
                )


def each_sample_is_generated_once(evidence: Evidence) -> Iterator[Breach]:
    yield from _exactly_once(evidence, _stages(evidence, (Kind.GENERATE,)), "generated")


def each_sample_is_assessed_once(evidence: Evidence) -> Iterator[Breach]:
    """By every stage between generation and training: scores, values, rewards, advantages."""
    stages = _stages(evidence, (Kind.INFERENCE, Kind.HOST, Kind.UPDATE))
    yield from _exactly_once(evidence, stages, "assessed")


def each_sample_is_trained_once(evidence: Evidence) -> Iterator[Breach]:
    yield from _exactly_once(evidence, _stages(evidence, (Kind.TRAIN,)), "trained")


def _exactly_once(evidence: Evidence, stages: Iterable[str], verb: str) -> Iterator[Breach]:
    steps = range(evidence.trace.first_step, evidence.trace.steps + 1)
    for stage in stages:
        tasks = evidence.lowered.tasks_of(stage)
        for step in steps:
            items = [task.slot.at(step) for task in tasks]
            spans = tuple(span for item in items for span in evidence.spans.get(item, ()))
            counts = Counter(i for item in items for i in worked_on(evidence, item))
            due = _due(evidence, stage, step)
            for sample in sorted(i for i, n in counts.items() if n > 1):
                owners = tuple(span for span in spans if sample in span.ids)
                yield f"sample {sample} is {verb} {counts[sample]} times by {stage}", owners
            for sample in sorted(counts.keys() - due):
                owners = tuple(span for span in spans if sample in span.ids)
                yield (
                    f"sample {sample} is {verb} by {stage} at step {step}, which did not generate it",
                    owners,
                )
            for sample in sorted(_owed(evidence, stage, step) - counts.keys()):
                yield f"sample {sample} is never {verb} by {stage} at step {step}", spans


def _generated(evidence: Evidence, step: int) -> set[int]:
    """The samples that generators say they made at a step; of one that was cut short, what had left it."""
    items = [
        task.slot.at(step)
        for s in _stages(evidence, (Kind.GENERATE,))
        for task in evidence.lowered.tasks_of(s)
    ]
    told = {i for item in items for i in worked_on(evidence, item)}
    cut = {item for item in items if item not in evidence.spans}
    return told | {i for (item, _), e in evidence.produced.items() if item in cut for i in e.ids}


def _owed(evidence: Evidence, stage: str, step: int) -> set[int]:
    """What a stage must have worked on by now: all that is due once it has finished, of a generator that of each item."""
    tasks = [task for task in evidence.lowered.tasks_of(stage) if not evidence.is_passed(task.slot.at(step))]
    ended = [task for task in tasks if task.slot.at(step) in evidence.finished]
    if len(ended) == len(tasks):
        return _due(evidence, stage, step)
    if evidence.trace.plan.graph.stage(stage).kind is not Kind.GENERATE:
        return set()
    alone = (task for task in ended if not task.hands_over)  # what others finish may be under way
    return {i for task in alone for i in ids_to_generate(task, evidence.trace.plan.workload, step)}


def _due(evidence: Evidence, stage: str, step: int) -> set[int]:
    """What a stage must have worked on at a step: a generator on the prompts of the rounds that there was need for,
    what selects and what it needs on all that was generated, and everything else on what was accepted."""
    graph = evidence.trace.plan.graph
    if graph.stage(stage).kind is Kind.GENERATE:
        return {
            i
            for task in evidence.lowered.tasks_of(stage)
            if not evidence.is_passed(task.slot.at(step))
            for i in ids_to_generate(task, evidence.trace.plan.workload, step)
        }
    if graph.selector is None or stage in graph.rounds:
        return _generated(evidence, step)
    made = (
        entry.ids
        for (item, _), entry in evidence.produced.items()
        if item.name == graph.selector.name and item.step == step
    )
    return {i for ids in made for i in ids}


def _stages(evidence: Evidence, kinds: tuple[Kind, ...]) -> tuple[str, ...]:
    """Stages of these kinds that the stream of samples passes through; those aside, as evaluation, have their own."""
    stages = (s for s in evidence.trace.plan.graph.stages if s.kind in kinds)
    return tuple(s.name for s in stages if any(task.covers for task in evidence.lowered.tasks_of(s.name)))


def worked_on(evidence: Evidence, item: Item) -> tuple[int, ...]:
    """The samples of an item: all its ranks' together, each as often as it was worked on."""
    told = (next((span.ids for span in spans if span.ids), ()) for spans in _ranks(evidence, item))
    return tuple(i for ids in told for i in ids)


def _ranks(evidence: Evidence, item: Item) -> Iterator[tuple[Span, ...]]:
    """The spans of each data-parallel rank (or those that share lanes); those on unplanned lanes are each their own."""
    spans = evidence.spans.get(item, ())
    task = evidence.task(item)
    if task is None or evidence.kind(item) is None:
        return
    assignment = evidence.trace.plan.assignment(item.name)
    cells = evidence.lowered.held.cells(assignment, task.lanes)
    rank = {lane: i for i, cell in enumerate(cells) for lane in cell.lanes}
    by_rank: dict[int, list[Span]] = {}
    for span in spans:
        by_rank.setdefault(rank.get(span.lane, -1), []).append(span)
    yield from (tuple(members) for number, members in sorted(by_rank.items()) if number >= 0)
    yield from ((span,) for span in by_rank.get(-1, ()))


def difference(got: Counter[int], due: Counter[int]) -> str:
    """``lacks 3, 7 and has 9 too often``, at most four of each."""
    words = []
    for verb, ids in (("lacks", due - got), ("has beyond its due", got - due)):
        if ids:
            some = ", ".join(str(i) for i in sorted(ids)[:4])
            words.append(f"{verb} sample {some}" + (" …" if len(ids) > 4 else ""))
    return " and ".join(words)


SAMPLES: tuple[Property, ...] = (
    ranks_work_on_one_share,
    items_work_on_their_samples,
    samples_belong_to_their_step,
    tokens_are_those_of_the_samples,
    each_sample_is_generated_once,
    each_sample_is_assessed_once,
    each_sample_is_trained_once,
)
