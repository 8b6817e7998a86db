"""What texts, their words and where they are kept cannot be combined with, each case with the rule that refuses it."""

from typing import Any

from fedtext.config.compatibility import texts

BAG = {"name": "bag", "embedding": {"dim": 5}, "hidden": ()}
LANGUAGE = {"name": "gru_lm", "embedding": {"dim": 5}, "hidden": 5}
FORUM: dict[str, Any] = {"corpus": {"name": "forum", "storage": "disk"}, "model": LANGUAGE}
TEXTS: list[tuple[Any, Any, dict[str, Any], str]] = [
    (texts.labels, "fedavg", {"model": LANGUAGE}, "predicts the next words of sentences, and corpus demo has labelled"),
    (
        texts.word_vectors,
        "fedavg",
        {
            "corpus": {"name": "demo", "text": {"hash": {"buckets": 9}}},
            "model": BAG | {"embedding": {"dim": 5, "init": "word2vec"}},
        },
        "word2vec has vectors of words",
    ),
    (
        texts.own_vocabularies,
        "fedavg",
        {"corpus": {"name": "demo", "own_vocabularies": True}},
        "shares one: use fedevocab or local_only",
    ),
    (
        texts.own_embeddings,
        "fedavg",
        {"model": {"embedding": {"dim": 5, "own": {"words": "all"}}}},
        "gives clients embeddings of their own, and method fedavg shares one",
    ),
    (
        texts.on_disk,
        "pooled",
        FORUM,
        "method: pooled trains on all clients' texts together, and these texts are on disk",
    ),
    (
        texts.on_disk,
        "fedavg",
        FORUM | {"audits": [{"membership": {"attack": {"rmia": {"shadows": 4}}}}]},
        "audits: shadow models are trained on all clients' texts, and these texts are on disk: set corpus.storage: mem",
    ),
    (
        texts.on_disk,
        "fedavg",
        FORUM | {"model": LANGUAGE | {"embedding": {"dim": 5, "init": "word2vec"}}},
        "model.embedding.init: word2vec is trained on all clients' texts, and these texts are on disk",
    ),
    (texts.on_disk, "fedavg", FORUM | {"save": {"model": "clients"}}, "save.model: clients keeps a part of the model"),
    (
        texts.digits,
        "fedrecon",
        {"corpus": {"name": "demo", "text": {"hash": {"buckets": 9}}}, "model": BAG},
        "needs the digits of words, which corpus.text removes",
    ),
    (
        texts.order,
        "fedavg",
        {"corpus": {"name": "demo", "max_length": None}},
        "processes a text word by word: set a number",
    ),
]
