"""Two models of one shape in one network, for methods with a personal model of each client beside the shared one."""

from torch import Tensor, nn

from fedtext.methods.base import Method, Model
from fedtext.models.adapters import RESIDUAL
from fedtext.models.batch import Batch
from fedtext.models.parts import Parts


class TwoCopies(nn.Module):
    """A shared model, and a private one that is initially its copy.

    Calling it returns logits_BC of the shared model; use ``personal`` for those of the private one.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.embedding, self.encoder, self.head = parts.embedding(), parts.encoder(), parts.head()
        self.embedding_private, self.encoder_private = parts.embedding(), parts.encoder()
        self.head_private = parts.head()
        self.encoder_private.load_state_dict(self.encoder.state_dict())
        self.head_private.load_state_dict(self.head.state_dict())

    def forward(self, batch: Batch) -> Tensor:
        return self.head(self.encoder(self.embedding, batch))


def is_private(parameter: str) -> bool:
    """Return whether a parameter stays on the client."""
    return parameter.partition(".")[0].endswith("_private")


class Copying(Method):
    """Base of methods with such a network, which compare or mix the two models parameter by parameter.

    The residual of adapters is a part of the base of both models, which clients do not train: that of the private model
    is the shared one.
    """

    def private(self, parameter: str) -> bool:
        return is_private(parameter)

    def mirrors(self, parameter: str) -> str:
        fixed = is_private(parameter) and parameter.endswith(f".{RESIDUAL}")
        return parameter.replace("_private.", ".", 1) if fixed else ""


def private_name(parameter: str) -> str:
    """Return the name in the private model of a parameter of the shared model."""
    part, _, rest = parameter.partition(".")
    return f"{part}_private.{rest}"


def personal(model: Model, share: float | Tensor = 1.0) -> Model:
    """Return the model with parameters share * private + (1 - share) * shared.

    Shared parameters get no gradient through it.

    Args:
        model: A ``TwoCopies`` with its parameters.
        share: Weight of the private parameters.
    """
    mixed = {}
    for name in [name for name in model.parameters if not is_private(name)]:
        own = model.parameters[private_name(name)]
        whole = isinstance(share, float) and share == 1
        mixed[name] = own if whole else share * own + (1 - share) * model.parameters[name].detach()
    return Model(model.network, model.parameters | mixed)
