"""Notes on a reproduced table: how its rows were trained, from which word vectors, which pairs are tested, which rows
were not run."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fedtext.config.experiment import Experiment
from fedtext.models.inits import CheckpointInit, FileInit, Source, Word2VecInit, has_vectors
from fedtext.training.config import Steps
from tune_spaces.cases import Case
from tune_spaces.papers import Paper, Table, compared

REFERENCE = "FedAvg"  # other systems are tested against it


def training_notes(rows: Mapping[str, Sequence[Case]]) -> list[str]:
    """Return one sentence for each training set-up; the most common one first, without the names of its rows."""
    found: dict[str, list[str]] = {}
    for name, (case, *_) in rows.items():
        found.setdefault(_training(case.experiment), []).append(name)
    first, *others = sorted(found.items(), key=lambda item: -len(item[1]))
    whole = f"Training: {first[0]}." if not others else f"Training, where nothing else is said: {first[0]}."
    return [whole, *(f"Training of {', '.join(names)}: {how}." for how, names in others)]


def personalization_notes(table: Table, rows: Mapping[str, Sequence[Case]]) -> list[str]:
    """Return how often Ap was evaluated (KTEPS paper, equation 16), if the table has it; by rows if they differ."""
    if not any(metric.startswith("Ap") and not metric.startswith("Ap_0") for metric in table.read.values()):
        return []
    found: dict[str, list[str]] = {}
    for name, (case, *_) in rows.items():
        if (personalize := case.experiment.evaluation.personalize) and case.experiment.method.personalizes:
            z, count = personalize.every, personalize.steps // personalize.every
            mean = "one accuracy" if count == 1 else f"the mean of n_Z = {count} accuracies"
            how = f"{mean}, after every z = {z} of {personalize.steps} steps of fine-tuning (equation 16)"
            found.setdefault(how, []).append(name)
    return [f"Ap{'' if len(found) == 1 else ' of ' + ', '.join(names)}: {how}." for how, names in found.items()]


def vector_notes(rows: Mapping[str, Sequence[Case]]) -> list[str]:
    """Return where word vectors are from, one sentence for each source; of random ones there is none."""
    found: dict[str, list[str]] = {}
    for name, (case, *_) in rows.items():
        embedding = case.experiment.model.embedding
        if has_vectors(embedding.sources):
            sources = list(map(_source, embedding.sources))
            which = sources[0] if len(sources) == 1 else f"one of {', '.join(sources)} for each client"
            found.setdefault(f"{which}; {embedding.dim} numbers each", []).append(name)
    alone = len(found) == 1 and len(rows) == len(next(iter(found.values())))
    return [f"Word vectors{'' if alone else ' of ' + ', '.join(names)}: {how}." for how, names in found.items()]


def _source(source: Source) -> str:
    """Return what initial word vectors are."""
    match source:
        case FileInit():
            return Path(source.path).name
        case CheckpointInit():
            return source.source
        case Word2VecInit():
            texts = {"unlabeled": "unlabeled texts", "train": "train texts", "full": "texts of all splits"}
            return f"{'skip-gram' if source.skip_gram else 'CBOW'}, trained on the corpus's {texts[source.corpus]}"
    return "random ones"


def _training(experiment: Experiment) -> str:
    training, fraction = experiment.training, experiment.participation.fraction
    optimizer = training.optimizer.model_dump(exclude_defaults=False)
    shown = [f"{optimizer.pop('name').upper()}", f"lr {optimizer.pop('lr'):g}"]
    shown += [f"{key} {value}" for key, value in optimizer.items() if value not in (None, False, 0.0, "constant")]
    size = training.batch_size
    batches = f"at most {size.steps} batches an epoch" if isinstance(size, Steps) else f"batches of {size}"
    epochs = f"{training.local_epochs} local epoch{'s' if training.local_epochs > 1 else ''}"
    clients = "all clients in each round" if fraction == 1 else f"a share of {fraction:g} of the clients in each round"
    rounds = f"{training.rounds} round{'s' if training.rounds > 1 else ''}"
    return ", ".join([*shown, batches, epochs, rounds]) + ("" if experiment.method.pooled else f", {clients}")


def pairs(paper: Paper, table: Table) -> list[tuple[str, str]]:
    """Return the pairs of rows to be tested: those that the paper's file names, and each row with its reference.

    The reference is the row of FedAvg with the same changes, or the only one; in a table without FedAvg the first row.
    """
    base = [name for name, row in table.rows.items() if row.system == REFERENCE]
    found = dict.fromkeys(compared(paper, table))
    for name, row in table.rows.items():
        if row.system == REFERENCE and len(base) > 1:
            continue
        alike = [other for other in base if table.rows[other].set == row.set]
        reference = next(iter(alike or (base if len(base) == 1 else [] if base else list(table.rows))), name)
        if reference != name:
            found[name, reference] = None
    return list(found)


def best_rows(table: Table, values: Mapping[str, float], less: bool) -> dict[str, str]:
    """Return the row of each system with the best value.

    Args:
        table: The table, with the rows that were run.
        values: The values of rows; rows without one are left out.
        less: Whether smaller values are better.
    """
    best: dict[str, str] = {}
    for name in sorted(values, key=lambda name: values[name] if less else -values[name]):
        best.setdefault(table.rows[name].system, name)
    return best


def best_pairs(paper: Paper, best: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the pairs of rows to be tested among the best rows of systems: those that the paper's file names, and each
    with the reference system's."""
    systems = [*paper.compare, *((system, REFERENCE) for system in best if system != REFERENCE)]
    return list(dict.fromkeys((best[one], best[other]) for one, other in systems if one in best and other in best))


def not_run(table: Table, scene: str, rows: Collection[str]) -> list[str]:
    """Return the rows of a table that were not run, marked if the paper has no value for them.

    Args:
        table: The table.
        scene: The paper's data set.
        rows: Names of the rows that were run.
    """
    return [
        name if row.paper[scene] else f"{name} (not in the paper)"
        for name, row in table.rows.items()
        if scene in row.paper and name not in rows
    ]
