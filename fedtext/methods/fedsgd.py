"""FedSGD (McMahan et al. 2017, section 2): in every round all clients, each with one pass over its texts."""

from typing import TYPE_CHECKING, Literal

from fedtext.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from fedtext.experiment import Experiment


class FedSGD(FedAvg):
    """FedSGD (McMahan et al. 2017): FedAvg with all clients in every round, one pass over their texts each.

    FedAvg with one local epoch and everybody there. ``training.batch_size: {steps: 1}`` makes it McMahan et al.'s,
    one full-batch step a round: with ``sgd`` a gradient step on the mean of the clients' losses, by their numbers of
    texts, which for classifiers is the loss over all texts. A number makes it the
    FedAtt paper's "one epoch of gradient descent" (Ji et al. 2019, section IV-B), of as many steps as there are
    batches."""

    name: Literal["fedsgd"] = "fedsgd"  # type: ignore[assignment]

    def misfit(self, experiment: "Experiment") -> str:
        if experiment.training.local_epochs != 1:
            return "training.local_epochs: method fedsgd is one pass over a client's texts a round: set it to 1"
        if experiment.participation.fraction != 1 or experiment.participation.dropout:
            return "participation: method fedsgd has all clients in every round: set fraction to 1 and dropout to 0"
        return super().misfit(experiment)
