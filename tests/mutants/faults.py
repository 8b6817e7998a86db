"""Faults of whole ideas, which no operator makes: each once went unnoticed. They are tried before all others."""

import ast
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.modules import path
from tests.mutants.operators import Mutant


@dataclass(frozen=True)
class Fault:
    """``old`` stands in the module exactly once; ``new`` takes its place."""

    what: str
    module: str
    old: str
    new: str

    def mutant(self) -> Mutant:
        """Raises ValueError if the module does not have ``old``, or has it more than once."""
        file = path(self.module)
        source = Path(file).read_text()
        if source.count(self.old) != 1:
            raise ValueError(
                f"tests/mutants/faults.py: {file} has {self.old!r} {source.count(self.old)} times, not once"
            )
        line = source[: source.index(self.old)].count("\n") + 1
        mutated = source.replace(self.old, self.new)
        ast.parse(mutated)
        return Mutant(file, enclosing(source, line), self.old.strip(), f"{self.new.strip()}  ({self.what})", mutated)


def enclosing(source: str, line: int) -> str:
    """The qualified name of the innermost class or outermost function around a line; empty for none."""
    names: list[str] = []
    node: ast.AST = ast.parse(source)
    while True:
        inside = [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.lineno <= line <= (child.end_lineno or 0)
        ]
        if not inside:
            return ".".join(names)
        node = inside[0]
        names.append(inside[0].name)
        if isinstance(node, ast.FunctionDef):
            return ".".join(names)


FAULTS = (
    Fault(
        "the same cohort every round",
        "server/sampling",
        'f"cohort{again}", round_).choice',
        'f"cohort{again}", 0).choice',
    ),
    Fault(
        "the same Poisson sample every round",
        "server/sampling",
        'drawn = f"cohort{again}", round_',
        'drawn = f"cohort{again}", 0',
    ),
    Fault(
        "the same Poisson samples in all trials with noise",
        "server/sampling",
        "noise.generator(*drawn) if",
        "noise.paired(seed, *drawn) if",
    ),
    Fault("the same absentees every round", "server/sampling", 'dropout{again}", round_, i)', 'dropout{again}", 0, i)'),
    Fault("all clients absent together", "server/sampling", 'dropout{again}", round_, i)', 'dropout{again}", round_)'),
    Fault("the same sample in every attempt", "server/sampling", 'f"/{attempt}" if', '"" if'),
    Fault("a cohort's size rounded down", "config/participation", "round(self.fraction * c", "int(self.fraction * c"),
    Fault("all clients draw the same noise", "wire/uplink", "round_, client))", "round_))"),
    Fault("all mechanisms draw from one stream", "wire/uplink", 'f"uplink/{name}"', '"uplink"'),
    Fault(
        "clients left out of the noise's key", "state/noise_key", '{round_}/{client}".encode()', '{round_}".encode()'
    ),
    Fault("rounds left out of the noise's key", "state/noise_key", "{purpose}/{round_}/", "{purpose}/"),
    Fault(
        "variance kept past a later clip",
        "mechanisms/clip",
        "return Bound(min(known, self.norm))",
        "return Bound(min(known, self.norm), before.variance)",
    ),
    Fault(
        "no rounding to a common unit",
        "server/weighted_sum",
        "            part += _ROUNDER\n            part -= _ROUNDER\n",
        "            pass\n",
    ),
    Fault("sums with noise rounded to the nearest", "server/weighted_sum", "np.trunc(part", "np.rint(part"),
    Fault("rows whatever wire.rows says", "wire/encoding", "own_rows != bool(places.rows)", "False"),
    Fault("restored numbers that are not finite", "wire/decoder", "if name := not_finite(tensors):", "if name := '':"),
    Fault("sums too large to be exact", "server/weighted_sum", "self.reach += distance", "pass"),
    Fault("merge forgets holders", "server/weighted_sum", "self.holders_V += other.holders_V", "pass"),
    Fault(
        "another client's optimizer state",
        "client/trainer",
        "self.kept(client, OPTIMIZER)",
        "self.remembered(sorted(members)[place])",
    ),
    Fault(
        "the same dropout masks every round",
        "client/trainer",
        '"training", round_, min(members)',
        '"training", 0, min(members)',
    ),
    Fault(
        "halves that all clients have in common",
        "client/texts",
        "phase.texts, seed, client)",
        "phase.texts, seed, 0)",
    ),
    Fault(
        "the first client's step count for all",
        "training/optimizer",
        "steps = [self.steps[c] for c in clients]",
        "steps = [self.steps[clients.start] for c in clients]",
    ),
    Fault(
        "the first client's schedule for all", "training/optimizer", "self.ahead[client])", "self.ahead[clients.start])"
    ),
    Fault(
        "the embedding's rate unscaled in Ap",
        "training/optimizer",
        "config.embedding_lr * lr / config.lr",
        "config.embedding_lr",
    ),
    Fault(
        "Ap as the last reading",
        "evaluation/__init__",
        "shares = {name: sum(values) / len(values) for name, values in curves.items()}",
        "shares = {name: values[-1] for name, values in curves.items()}",
    ),
    Fault(
        "probabilities for log-odds",
        "evaluation/classes",
        "log_BC = probabilities_BC.log()",
        "log_BC = probabilities_BC",
    ),
    Fault(
        "the membership limit from all losses",
        "evaluation/membership",
        "limit, judged_M = train_M[::2].mean",
        "limit, judged_M = np.concatenate([train_M, test_U]).mean",
    ),
    Fault("the last round unsaved", "server/federation", "if last or round_ %", "if round_ %"),
    Fault(
        "failed clients counted as trained", "server/traffic", "len(self.cohort) - len(self.errors)", "len(self.cohort)"
    ),
    Fault("who trained in vain is not set back", "server/federation", "self.fleet.restore(states)", "pass"),
    Fault("row ids of any type", "wire/encoding", "rows.dtype != np.int32 or ", ""),
    Fault("memory sent as it lies", "wire/encoding", 'np.asarray(t, order="C")', "t"),
    Fault("rows sent as they lie in memory", "wire/encoding", 'np.asarray(update.rows, order="C")', "update.rows"),
)
