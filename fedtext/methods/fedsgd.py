"""FedSGD (McMahan et al. 2017, section 2): in every round all clients, each with one pass over its texts."""

from typing import TYPE_CHECKING, Literal

from fedtext.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from fedtext.experiment import Experiment


class FedSGD(FedAvg):
    """FedAvg with one local epoch and everybody there. ``training.batch_size: {steps: 1}`` makes it McMahan et al.'s,
    one full-batch step a round: with ``sgd`` a gradient step on the loss over all clients' texts. A number makes it the
    FedAtt paper's "one epoch of gradient descent" (Ji et al. 2019, section IV-B), of as many steps as there are
    batches."""

    name: Literal["fedsgd"] = "fedsgd"  # type: ignore[assignment]

    def misfit(self, experiment: "Experiment") -> str:
        if experiment.training.local_epochs != 1:
            return "training.local_epochs: method fedsgd is one pass over a client's texts a round: set it to 1"
        if experiment.participation.fraction != 1:
            return "participation.fraction: method fedsgd has all clients in every round: set it to 1"
        return super().misfit(experiment)
