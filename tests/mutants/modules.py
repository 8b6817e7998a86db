"""Which modules are mutated, and the test files whose tests may notice it. None of these tests starts Ray."""

MODULES: dict[str, tuple[str, ...]] = {
    "methods/asp_mtl": ("asp_mtl", "kteps_baselines", "methods"),
    "methods/base": ("methods", "kteps_baselines"),
    "methods/fedatt": ("fedatt", "methods"),
    "methods/fedavg": ("kteps_baselines", "methods", "language_models"),
    "methods/fedevocab": ("fedevocab", "kteps_baselines", "methods", "language_models"),
    "methods/fedfusion": ("fedfusion", "kteps_baselines", "methods"),
    "methods/fedmmd": ("kteps_baselines", "methods"),
    "methods/fedper": ("kteps_baselines", "methods"),
    "methods/fedprox": ("kteps_baselines", "methods"),
    "methods/fedrecon": ("fedevocab", "methods", "worker", "language_models"),
    "methods/fedsgd": ("fedatt", "kteps_baselines", "methods", "config"),
    "methods/frozen": ("fedfusion", "kteps_baselines", "methods"),
    "methods/kteps": ("methods", "kteps_baselines"),
    "methods/lg_fedavg": ("lg_fedavg", "kteps_baselines", "methods"),
    "methods/local_only": ("methods", "kteps_baselines"),
    "methods/pfl_da": ("kteps_baselines", "methods"),
    "methods/pooled": ("methods", "kteps_baselines"),
    "mechanisms/base": ("mechanisms", "uplink", "project"),
    "mechanisms/clip": ("mechanisms", "ledger"),
    "mechanisms/draws": ("draws", "mechanisms", "uplink"),
    "mechanisms/gaussian": ("mechanisms", "uplink", "ledger"),
    "mechanisms/project": ("project", "mechanisms"),
    "mechanisms/quantize": ("mechanisms", "uplink", "ledger"),
    "mechanisms/randomized_response": ("draws", "mechanisms", "uplink", "ledger"),
    "ledger/__init__": ("ledger", "central"),
    "accounting/composition": ("composition", "ledger"),
    "accounting/entry": ("ledger",),
    "accounting/gaussian": ("composition", "ledger", "central"),
    "ledger/outside": ("ledger",),
    "evaluation/__init__": ("evaluation", "binary", "language_models", "fedevocab", "own_vocabularies"),
    "evaluation/classes": ("evaluation", "binary"),
    "evaluation/unigram": ("unigram",),
    "evaluation/words": ("language", "language_models", "evaluation"),
    "server/aggregation": ("aggregation", "methods", "federation"),
    "state/checkpoint": ("checkpoint", "federation", "server"),
    "server/sampling": ("cohort", "central"),
    "server/federation": ("federation", "central", "server", "selection", "cohort", "wire", "lg_fedavg"),
    "state/fingerprint": ("noise", "federation", "server", "pretrained"),
    "client/host": ("worker", "stacks", "packing", "fedevocab", "own_vocabularies"),
    "wire/decoder": ("federation", "uplink", "project", "aggregation"),
    "layout": ("aggregation", "worker", "methods", "optimizer"),
    "metrics": ("metrics", "keys"),
    "state/noise_key": ("noise", "uplink", "central"),
    "client/evaluate": ("evaluation", "fedevocab", "language_models", "own_vocabularies"),
    "server/optimizers": ("server", "methods"),
    "server/noise": ("central",),
    "training/optimizer": ("optimizer", "worker", "evaluation", "asp_mtl"),
    "wire/uplink": ("uplink", "wire", "mechanisms"),
    "wire/encoding": ("wire", "federation"),
    "client/worker": ("worker", "stacks", "packing", "audits"),
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
