"""What audits cannot be combined with, each case with the rule that refuses it."""

from typing import Any

from fedtext.config.compatibility import audits
from tests.fedtext.config.text_cases import BAG

AUDITS: list[tuple[Any, Any, dict[str, Any], str]] = [
    (audits.names, "fedavg", {"audits": ["membership", "membership"]}, "one of them is listed twice"),
    (
        audits.sampled,
        "fedavg",
        {"audits": ["membership"], "participation": {"pace": {}}, "server": {"buffer": {"size": 2}}},
        "they compare the updates of a round, which with server.buffer are not of one",
    ),
    (audits.gradient_inversion, "fedavg", {"audits": ["gradient_inversion"], "model": BAG}, "use embedding_rows"),
    (
        audits.gradient_inversion,
        "fedavg",
        {"audits": ["gradient_inversion"], "model": "gru_lm", "corpus": "ptb"},
        "model gru_lm predicts words: use embedding_rows",
    ),
    (audits.span_inversion, "fedavg", {"audits": ["span_inversion"]}, "span_inversion is for model transformer"),
    (
        audits.attribute_inference,
        "local_only",
        {"audits": [{"attribute_inference": {"words": ["w3"]}}]},
        "attribute_inference needs updates, and method local_only sends none",
    ),
    (
        audits.label_leakage,
        "fedper",
        {"audits": ["label_leakage"]},
        "needs the output layer's update, and method fedper",
    ),
    (audits.membership, "fedper", {"audits": ["membership"]}, "shares no complete encoder and output layer"),
    (audits.exposure, "fedavg", {"audits": ["exposure"]}, "audits: exposure is for language models"),
]
