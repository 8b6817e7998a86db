"""The parts that a method builds its network from (KTEPS paper, equations 1-4)."""

from torch import Tensor, nn

from fedtext.errors import UserError
from fedtext.models.base import ClassifierConfig, ModelConfig
from fedtext.models.batch import Batch
from fedtext.models.language import GRULanguageModel, LanguageModel


class Parts:
    """The components a method builds its network from.

    Args:
        config: The model.
        classes: C; of a language model the vocabulary's entries but <pad>.
        clients: Number of the corpus's clients.
        corpus_features: How many numbers stand beside the words of a text.
        weights: Whether weights of a checkpoint are loaded. They need not be where the network is given others with
            every call.

    Raises:
        UserError: If the model is for another number of classes.
    """

    def __init__(
        self, config: ModelConfig, classes: int, clients: int = 1, corpus_features: int = 0, weights: bool = True
    ) -> None:
        self.config, self.classes, self.clients, self.weights = config, classes, clients, weights
        if isinstance(config, ClassifierConfig) and config.output == "sigmoid" and classes != 2:
            raise UserError(f"model.output: one sigmoid unit tells 2 classes apart, and the corpus has {classes}")
        self.features = config.width(corpus_features)  # F, the width of the encoder's output

    @property
    def classifier(self) -> ClassifierConfig:
        assert isinstance(self.config, ClassifierConfig), "a language model has no encoder"
        return self.config

    def embedding(self) -> nn.Embedding:
        # One row only: the real table, as many rows as a client's vocabulary has, is given with every call.
        return nn.Embedding(1, self.config.embedding.dim)

    def encoder(self) -> nn.Module:
        return self.classifier.build_encoder(self.weights)

    def head(self, features: int | None = None) -> nn.Sequential:
        """G, for the encoder's features or any other number of them."""
        return self.classifier.build_head(features or self.features, self.classes)

    def projection(self) -> nn.Linear:
        """A single fully connected layer, output as wide as its input (KTEPS paper, below equation 7)."""
        return nn.Linear(self.features, self.features)


def whole(parts: Parts) -> nn.Module:
    """The network of a method that asks for nothing special."""
    if isinstance(parts.config, GRULanguageModel):
        return LanguageModel(parts.config, parts.classes, parts.embedding())
    return SingleBranch(parts)


class SingleBranch(nn.Module):
    """The plain classifier: logits_BC of equations 1-4."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.embedding, self.encoder, self.head = parts.embedding(), parts.encoder(), parts.head()

    def forward(self, batch: Batch) -> Tensor:
        return self.head(self.encoder(self.embedding, batch))
