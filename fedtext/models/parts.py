"""The modules from which a method builds its network (KTEPS paper, equations 1-4)."""

from torch import Tensor, nn

from fedtext.errors import UserError
from fedtext.models.bag import mean_cross_entropy
from fedtext.models.base import ClassifierConfig, ModelConfig
from fedtext.models.batch import Batch
from fedtext.models.fused import FusedLoss, classifier_loss
from fedtext.models.language import LanguageConfig
from fedtext.models.plain import unhooked


class Parts:
    """The modules from which a method builds its network. Each call of a method builds a new module.

    Args:
        config: The model.
        classes: Number of classes C; for a language model the size of the vocabulary without ``<pad>``.
        clients: Number of clients of the corpus.
        corpus_features: Number of features of a text beside its words.
        weights: Whether to load the weights of a checkpoint. They are not needed if the network is given other
            parameters with every call.

    Attributes:
        features: F, the width of the encoder's output.

    Raises:
        UserError: The model is for another number of classes.
    """

    def __init__(
        self, config: ModelConfig, classes: int, clients: int = 1, corpus_features: int = 0, weights: bool = True
    ) -> None:
        self.config, self.classes, self.clients, self.weights = config, classes, clients, weights
        if isinstance(config, ClassifierConfig) and config.output == "sigmoid" and classes != 2:
            raise UserError(
                f"model.output: sigmoid is for 2 classes, and the corpus has {classes}: set model.output to softmax"
            )
        self.features = config.width(corpus_features)

    @property
    def classifier(self) -> ClassifierConfig:
        """The keys of the model, which must be a classifier."""
        assert isinstance(self.config, ClassifierConfig), "a language model has no encoder"
        return self.config

    def embedding(self) -> nn.Embedding:
        """Build an embedding table with a single row.

        It is a placeholder: the client's table, with the rows of its vocabulary, is given with every call.
        """
        return nn.Embedding(1, self.config.embedding.dim)

    def encoder(self) -> nn.Module:
        """Build the encoder, which is called with (table, batch) and returns features_BF."""
        return self.classifier.build_encoder(self.weights)

    def head(self, features: int | None = None) -> nn.Sequential:
        """Build G, from features_BF to logits_BC.

        Args:
            features: Width of its input; None: that of the encoder's output.
        """
        return self.classifier.build_head(features or self.features, self.classes)

    def projection(self) -> nn.Linear:
        """Build a fully connected layer from F to F features (KTEPS paper, below equation 7)."""
        return nn.Linear(self.features, self.features)


def whole(parts: Parts) -> nn.Module:
    """Build the network of a method without layers of its own: a classifier or a language model."""
    if isinstance(parts.config, LanguageConfig):
        return parts.config.build(parts.classes, parts.embedding(), parts.weights)
    return SingleBranch(parts)


class SingleBranch(nn.Module):
    """A classifier with one embedding, encoder and head. It returns logits_BC (KTEPS paper, equations 1-4)."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.embedding, self.encoder, self.head = parts.embedding(), parts.encoder(), parts.head()

    def forward(self, batch: Batch) -> Tensor:
        return self.head(self.encoder(self.embedding, batch))

    def cross_entropy(self, batch: Batch) -> Tensor | None:
        """Compute the mean cross-entropy of a batch in one function; None: there is none for this model."""
        if not self._computes():  # a subclass or a hook computes other logits
            return None
        return mean_cross_entropy(self.embedding, self.encoder, self.head, batch)

    def fused(self) -> FusedLoss | None:
        """Return the mean cross-entropy with its gradients as one function; None: there is none for this model."""
        if not self._computes() or type(self).cross_entropy is not SingleBranch.cross_entropy:  # others are computed
            return None
        return classifier_loss(self, self.encoder, self.head)

    def _computes(self) -> bool:
        """Whether calling it calls the ``forward`` of this class alone."""
        return type(self).forward is SingleBranch.forward and "forward" not in vars(self) and unhooked(self)
