"""Which modules are mutated, and the test files whose tests may notice it. None of these tests starts Ray."""

from pathlib import Path

MODULES: dict[str, tuple[str, ...]] = {
    "aggregations/attention": ("fedatt", "aggregations"),
    "aggregations/geometric_median": ("aggregations",),
    "aggregations/krum": ("aggregations", "aggregation_keys"),
    "aggregations/norm_bounded": ("aggregations",),
    "aggregations/norms": ("fedatt", "aggregations"),
    "aggregations/update_set": ("aggregations",),
    "aggregations/trimmed_mean": ("aggregations", "aggregation_keys"),
    "methods/apfl": ("declared", "by_hand", "methods"),
    "methods/copies": ("by_hand", "methods"),
    "methods/ditto": ("declared", "by_hand", "methods"),
    "methods/feddyn": ("declared", "state", "methods"),
    "methods/layouts": ("state",),
    "methods/scaffold": ("declared", "state", "methods"),
    "methods/state": ("state",),
    "methods/asp_mtl": ("declared", "asp_mtl", "by_hand", "methods"),
    "methods/base": ("declared", "methods", "by_hand"),
    "methods/fedavg": ("declared", "by_hand", "methods", "language_models"),
    "methods/fedevocab": ("declared", "fedevocab", "by_hand", "methods", "language_models"),
    "methods/fedfusion": ("fedfusion", "by_hand", "methods"),
    "methods/fedmmd": ("fedfusion", "by_hand", "methods"),
    "methods/fedper": ("declared", "by_hand", "methods"),
    "methods/fedprox": ("declared", "by_hand", "methods"),
    "methods/fedrecon": ("declared", "fedevocab", "methods", "worker", "language_models"),
    "methods/fedsgd": ("fedatt", "by_hand", "methods", "config"),
    "methods/frozen": ("declared", "fedfusion", "by_hand", "methods"),
    "methods/kteps": ("declared", "methods", "by_hand"),
    "methods/lg_fedavg": ("declared", "lg_fedavg", "by_hand", "methods"),
    "methods/local_only": ("declared", "methods", "by_hand"),
    "methods/pfl_da": ("declared", "by_hand", "methods"),
    "methods/pooled": ("declared", "methods", "by_hand"),
    "mechanisms/base": ("ledger_entries", "mechanisms", "uplink", "project", "ledger"),
    "mechanisms/clip": ("ledger_entries", "mechanisms", "ledger"),
    "mechanisms/draws": ("draws", "mechanisms", "uplink"),
    "mechanisms/gaussian": ("ledger_entries", "mechanisms", "uplink", "ledger"),
    "mechanisms/project": ("project", "mechanisms"),
    "mechanisms/quantize": ("ledger_entries", "mechanisms", "uplink", "ledger"),
    "mechanisms/randomized_response": ("ledger_entries", "draws", "mechanisms", "uplink", "ledger"),
    "ledger/__init__": ("ledger_entries", "ledger", "noise"),
    "accounting/composition": ("composition", "ledger_entries", "ledger"),
    "accounting/entry": ("ledger_entries", "ledger"),
    "accounting/gaussian": ("ledger_entries", "composition", "ledger", "noise"),
    "ledger/outside": ("ledger_entries", "ledger"),
    "evaluation/__init__": ("evaluation", "binary", "language_models", "fedevocab", "own_vocabularies"),
    "evaluation/classes": ("evaluation", "binary"),
    "evaluation/unigram": ("unigram",),
    "evaluation/words": ("language", "language_models", "evaluation"),
    "server/aggregation": ("layout", "aggregation", "aggregations", "methods", "federation"),
    "state/checkpoint": ("checkpoint", "federation", "optimizers"),
    "server/sampling": ("sampling", "noise"),
    "server/downlink": ("downlink", "federation", "wire", "lg_fedavg", "state"),
    "server/federation": (
        "rounds",
        "metrics",
        "federation",
        "noise",
        "optimizers",
        "selection",
        "sampling",
        "wire",
        "lg_fedavg",
        "state",
        "methods",
    ),
    "state/fingerprint": (
        "rounds",
        "noise_key",
        "draws_of_runs",
        "federation",
        "optimizers",
        "pretrained",
        "plugins",
    ),
    "server/traffic": ("rounds", "metrics", "federation"),
    "client/own_rows": ("host", "fedevocab", "own_vocabularies"),
    "client/texts": ("worker", "host", "own_vocabularies", "fedevocab", "packing"),
    "client/host": ("host", "worker", "stacks", "packing", "fedevocab", "own_vocabularies", "joined", "state"),
    "wire/decoder": ("federation", "uplink", "project", "aggregation"),
    "layout": ("layout", "aggregation", "worker", "methods", "optimizer"),
    "metrics/__init__": ("metrics", "keys"),
    "metrics/metric": ("metrics", "keys"),
    "state/noise_key": ("noise_key", "draws_of_runs", "uplink", "noise"),
    "client/evaluate": ("host", "evaluation", "fedevocab", "language_models", "own_vocabularies"),
    "server/method_state": ("state",),
    "server/optimizers": ("optimizers", "methods"),
    "server/noise": ("noise",),
    "training/optimizer": ("optimizer", "worker", "fedevocab", "evaluation", "asp_mtl", "state"),
    "wire/uplink": ("uplink", "worker", "wire", "mechanisms", "state", "host"),
    "wire/encoding": ("wire", "federation"),
    "client/worker": ("host", "worker", "stacks", "packing", "audits", "state"),
}


# Of these only the faults of faults.py are tried.
FAULTS_ONLY: dict[str, tuple[str, ...]] = {
    "audits/membership": ("evaluation",),
}


def path(module: str) -> str:
    return f"fedtext/{module}.py"


def test_files(module: str) -> list[str]:
    """Return the files in tests/ that belong to a module."""
    there = {file.stem.removeprefix("test_"): str(file) for file in sorted(Path("tests").rglob("test_*.py"))}
    return [there[name] for name in (MODULES | FAULTS_ONLY)[module]]
