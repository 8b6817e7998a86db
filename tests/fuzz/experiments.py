"""Experiment files and overrides of the command line, mutated."""

import copy
import random
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedtext.config.spaces import SPACES
from tests.commands import EXPERIMENT
from tests.fuzz import raw
from tests.fuzz.trees import mutated, parent, places
from tests.fuzz.values import VALUES, YAML, spliced, strange

DEMO = {"name": "demo", "clients": 3, "train": 12, "test": 6, "validation": 0.25}
HUGE = (10**9, 10**7, 10**12, 10**18, 10**100)
SIZES = (
    *("training.rounds", "training.local_epochs", "training.batch_size", "training.stack", "model.hidden"),
    *("model.layers", "participation.fraction"),
    *("model.embedding.dim", "model.head.hidden", "model.head.layers", "model.head", "corpus.clients", "corpus.train"),
    *("corpus.test", "corpus.max_length", "corpus.vocabulary", "corpus.text.hash.buckets", "seeds", "seed"),
    *("tune.samples", "training.optimizer.lr"),
    *("tune.startup", "tune.pending", "evaluation.personalize.steps", "evaluation.every", "participation.min_clients"),
    *("evaluation.union.texts", "checkpoint.every", "resources.clients_per_actor", "resources.gpus_per_actor"),
)


@dataclass(frozen=True)
class Given:
    """The content of an experiment file, and words of the command line."""

    text: bytes
    overrides: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.text[:4000]!r} {[word[:500] for word in self.overrides]}"


@cache
def seeds() -> tuple[dict[str, Any], ...]:
    """The experiments that come with the platform and that of the tests, on small corpora, but for language models."""
    files = sorted(SPACES.glob("*.yaml"))
    found = [EXPERIMENT, *(yaml.safe_load(file.read_text()) for file in files)]
    models = (str(content.get("model")) for content in found)
    return tuple(_small(each) for each, model in zip(found, models, strict=True) if not re.search("_lm|causal", model))


def _small(content: dict[str, Any]) -> dict[str, Any]:
    """The experiment on a small corpus, without what needs files or words that the corpus does not have."""
    model = content.get("model") or {}
    if model.get("name") == "transformer":
        model = {"name": "transformer", "layers": 1, "heads": 2, "embedding": {"dim": 8}, "intermediate": 8}
    model = model | {"embedding": {"dim": min(model.get("embedding", {}).get("dim", 8), 200)}}
    space = {key: spec for key, spec in content.get("space", {}).items() if not key.startswith("corpus.")}
    space |= {key: {"grid": ["fedavg", "fedevocab"]} for key in space if key == "method"}
    audits = [audit for audit in content.get("audits", ()) if "word_relations" not in audit]
    baselines = [one for one in content.get("baselines", ()) if one != "fedrecon"]  # needs words with digits
    training = {**content.get("training", {}), "rounds": 2}
    changed = {"corpus": DEMO, "model": model, "space": space, "audits": audits}
    return content | changed | {"training": training, "baselines": baselines}


def of_file(name: str, *overrides: str) -> Given:
    """One of the experiments that come with the platform on a small corpus, with overrides."""
    content = _small(yaml.safe_load((SPACES / name).read_text()))
    return Given(yaml.safe_dump(content).encode(), overrides)


def drawn(draw: random.Random) -> Given:
    """An experiment with a mutation of its keys, of its text or of its overrides."""
    tree = copy.deepcopy(draw.choice(seeds()))
    kind = draw.randrange(10)
    if kind < 5:
        text = spliced(yaml.safe_dump(mutated(tree, draw, marks=True), allow_unicode=draw.random() < 0.5))
        return Given(text.encode("utf-8", "surrogatepass"), ())
    if kind == 5:
        return Given(raw.mutated(yaml.safe_dump(tree).encode(), draw), ())
    if kind == 6:
        tree |= {"space": _space(tree, draw)} | ({"seeds": draw.choice((2, 10**9))} if draw.random() < 0.3 else {})
        return Given(yaml.safe_dump(mutated(tree, draw) if draw.random() < 0.3 else tree).encode(), ())
    words = tuple(_override(tree, draw) for _ in range(draw.choice((1, 1, 2))))
    return Given(yaml.safe_dump(tree).encode(), words)


def _dotted(tree: Any, draw: random.Random) -> tuple[str, Any]:
    path = draw.choice(list(places(tree)))
    return ".".join(map(str, path)), parent(tree, path)[path[-1]]


def _override(tree: Any, draw: random.Random) -> str:
    key = draw.choice(SIZES) if draw.random() < 0.6 else _dotted(tree, draw)[0]
    if draw.random() < 0.05:
        return draw.choice((key, f"={key}", f"{key}.", f".{key}=1", f"{key}..x=1", f"{key}.0.x=1", f"{key}.{10**9}=1"))
    if draw.random() < 0.5:
        return f"{key}={draw.choice(HUGE)}"
    if draw.random() < 0.4:
        return f"{key}={draw.choice(YAML)}"
    return f"{key}={yaml.safe_dump(strange(draw), default_flow_style=True).removesuffix('...' + chr(10)).strip()}"


def _space(tree: Any, draw: random.Random) -> dict[str, Any]:
    """A space of many dimensions or of long ones, sensible or not."""
    space: dict[str, Any] = {}
    for _ in range(draw.choice((1, 2, 4, 9))):
        key, value = _dotted(tree, draw) if draw.random() < 0.3 else (draw.choice(SIZES), 3)
        number = value if type(value) in (int, float) else 1
        forms: list[dict[str, Any]] = [
            {"grid": [value] * draw.choice((1, 10, 1000))},
            {"grid": list(range(1, draw.choice((3, 10, 100))))},
            {"choice": [value, draw.choice(VALUES)]},
            {"uniform": [number, draw.choice((1, 1e308, float("inf"), 0, -1))]},
            {"loguniform": [draw.choice((0, -1, 1e-3)), number]},
            {"randint": [draw.choice((0, 10**30)), draw.choice((10, 10**9, 1.5))]},
            {"quniform": [0, number, draw.choice((0, 1e-9, 1))]},
            {draw.choice(("grid", "uniform", "x", "")): draw.choice(VALUES)},
        ]
        space[key] = draw.choice(forms)
    return space


def use(given: Given, home: Path) -> None:
    """What ``sweep --dry-run`` does with an experiment, in this process."""
    from sweeps.plan import plan
    from sweeps.request import Request

    file = home.parent / "fuzzed.yaml"
    file.write_bytes(given.text)
    plan(Request("sweep", str(file), given.overrides))
