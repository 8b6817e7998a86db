"""Audits. To add one, write its file and name its class here."""

from fedtext.audits.attribute_inference import AttributeInference
from fedtext.audits.base import Audit
from fedtext.audits.embedding_rows import EmbeddingRows
from fedtext.audits.exposure import Exposure
from fedtext.audits.gradient_inversion import GradientInversion
from fedtext.audits.label_leakage import LabelLeakage
from fedtext.audits.membership import Membership
from fedtext.audits.span_inversion import SpanInversion
from fedtext.audits.word_relations import WordRelations

AUDITS: dict[str, type[Audit]] = {
    "word_relations": WordRelations,
    "gradient_inversion": GradientInversion,
    "span_inversion": SpanInversion,
    "embedding_rows": EmbeddingRows,
    "label_leakage": LabelLeakage,
    "membership": Membership,
    "attribute_inference": AttributeInference,
    "exposure": Exposure,
}
