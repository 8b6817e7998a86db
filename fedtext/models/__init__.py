"""Models: each file has a model's keys and its layers."""

from fedtext.models.bag import BagClassifier, LogisticClassifier
from fedtext.models.base import ModelConfig
from fedtext.models.causal import CausalLanguageModel
from fedtext.models.language import RecurrentLanguageModel
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.models.transformer import TransformerClassifier
from fedtext.models.vectors import VectorClassifier
from fedtext.schema import names_of

MODELS: dict[str, type[ModelConfig]] = {
    name: cls
    for cls in (
        RecurrentClassifier,
        BagClassifier,
        LogisticClassifier,
        VectorClassifier,
        TransformerClassifier,
        RecurrentLanguageModel,
        CausalLanguageModel,
    )
    for name in names_of(cls)
}
