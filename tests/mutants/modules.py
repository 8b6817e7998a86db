"""Which modules are mutated, and the test files whose tests may notice it. None of these tests starts Ray."""

MODULES: dict[str, tuple[str, ...]] = {
    "aggregations/attention": ("fedatt", "aggregations"),
    "aggregations/geometric_median": ("aggregations",),
    "aggregations/krum": ("aggregations", "aggregation_keys"),
    "aggregations/norm_bounded": ("aggregations",),
    "aggregations/norms": ("fedatt", "aggregations"),
    "aggregations/update_set": ("aggregations",),
    "aggregations/trimmed_mean": ("aggregations", "aggregation_keys"),
    "methods/apfl": ("declared", "kteps_baselines", "methods"),
    "methods/copies": ("kteps_baselines", "methods"),
    "methods/ditto": ("declared", "kteps_baselines", "methods"),
    "methods/feddyn": ("declared", "method_state", "methods"),
    "methods/layouts": ("method_state",),
    "methods/scaffold": ("declared", "method_state", "methods"),
    "methods/state": ("method_state",),
    "methods/asp_mtl": ("declared", "asp_mtl", "kteps_baselines", "methods"),
    "methods/base": ("declared", "methods", "kteps_baselines"),
    "methods/fedavg": ("declared", "kteps_baselines", "methods", "language_models"),
    "methods/fedevocab": ("declared", "fedevocab", "kteps_baselines", "methods", "language_models"),
    "methods/fedfusion": ("fedfusion", "kteps_baselines", "methods"),
    "methods/fedmmd": ("fedfusion", "kteps_baselines", "methods"),
    "methods/fedper": ("declared", "kteps_baselines", "methods"),
    "methods/fedprox": ("declared", "kteps_baselines", "methods"),
    "methods/fedrecon": ("declared", "fedevocab", "methods", "worker", "language_models"),
    "methods/fedsgd": ("fedatt", "kteps_baselines", "methods", "config"),
    "methods/frozen": ("declared", "fedfusion", "kteps_baselines", "methods"),
    "methods/kteps": ("declared", "methods", "kteps_baselines"),
    "methods/lg_fedavg": ("declared", "lg_fedavg", "kteps_baselines", "methods"),
    "methods/local_only": ("declared", "methods", "kteps_baselines"),
    "methods/pfl_da": ("declared", "kteps_baselines", "methods"),
    "methods/pooled": ("declared", "methods", "kteps_baselines"),
    "mechanisms/base": ("ledger_entries", "mechanisms", "uplink", "project", "ledger"),
    "mechanisms/clip": ("ledger_entries", "mechanisms", "ledger"),
    "mechanisms/draws": ("draws", "mechanisms", "uplink"),
    "mechanisms/gaussian": ("ledger_entries", "mechanisms", "uplink", "ledger"),
    "mechanisms/project": ("project", "mechanisms"),
    "mechanisms/quantize": ("ledger_entries", "mechanisms", "uplink", "ledger"),
    "mechanisms/randomized_response": ("ledger_entries", "draws", "mechanisms", "uplink", "ledger"),
    "ledger/__init__": ("ledger_entries", "ledger", "central"),
    "accounting/composition": ("composition", "ledger_entries", "ledger"),
    "accounting/entry": ("ledger_entries", "ledger"),
    "accounting/gaussian": ("ledger_entries", "composition", "ledger", "central"),
    "ledger/outside": ("ledger_entries", "ledger"),
    "evaluation/__init__": ("evaluation", "binary", "language_models", "fedevocab", "own_vocabularies"),
    "evaluation/classes": ("evaluation", "binary"),
    "evaluation/unigram": ("unigram",),
    "evaluation/words": ("language", "language_models", "evaluation"),
    "server/aggregation": ("layout", "aggregation", "aggregations", "methods", "federation"),
    "state/checkpoint": ("checkpoint", "federation", "server"),
    "server/sampling": ("cohort", "central"),
    "server/downlink": ("federation", "wire", "lg_fedavg", "method_state"),
    "server/federation": (
        "rounds",
        "metrics",
        "federation",
        "central",
        "server",
        "selection",
        "cohort",
        "wire",
        "lg_fedavg",
    ),
    "state/fingerprint": ("rounds", "noise_key", "noise", "federation", "server", "pretrained"),
    "client/host": ("hosted", "worker", "stacks", "packing", "fedevocab", "own_vocabularies"),
    "wire/decoder": ("federation", "uplink", "project", "aggregation"),
    "layout": ("layout", "aggregation", "worker", "methods", "optimizer"),
    "metrics": ("metrics", "keys"),
    "state/noise_key": ("noise_key", "noise", "uplink", "central"),
    "client/evaluate": ("hosted", "evaluation", "fedevocab", "language_models", "own_vocabularies"),
    "server/method_state": ("method_state",),
    "server/optimizers": ("server", "methods"),
    "server/noise": ("central",),
    "training/optimizer": ("optimizer", "worker", "fedevocab", "evaluation", "asp_mtl"),
    "wire/uplink": ("uplink", "worker", "wire", "mechanisms"),
    "wire/encoding": ("wire", "federation"),
    "client/worker": ("hosted", "worker", "stacks", "packing", "audits"),
}


# Of these only the faults of faults.py are tried.
FAULTS_ONLY: dict[str, tuple[str, ...]] = {
    "audits/membership": ("evaluation",),
    "client/texts": ("worker",),
}


def path(module: str) -> str:
    return f"fedtext/{module}.py"


def test_files(module: str) -> list[str]:
    """The files in tests/ that belong to a module."""
    return [f"tests/test_{name}.py" for name in (MODULES | FAULTS_ONLY)[module]]
