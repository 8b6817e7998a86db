"""Audits. To add one, write its file and name its class here."""

from fedtext.audits.base import Audit
from fedtext.audits.embedding_rows import EmbeddingRows
from fedtext.audits.exposure import Exposure
from fedtext.audits.gradient_inversion import GradientInversion
from fedtext.audits.label_leakage import LabelLeakage
from fedtext.audits.membership import Membership
from fedtext.audits.word_relations import WordRelations

AUDITS: dict[str, type[Audit]] = {
    "word_relations": WordRelations,
    "gradient_inversion": GradientInversion,
    "embedding_rows": EmbeddingRows,
    "label_leakage": LabelLeakage,
    "membership": Membership,
    "exposure": Exposure,
}
