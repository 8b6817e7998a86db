"""FedSGD (McMahan et al. 2017, section 2): in every round all clients, each with one pass over its texts."""

from typing import Literal

from fedtext.methods.fedavg import FedAvg


class FedSGD(FedAvg):
    """FedSGD (McMahan et al. 2017): FedAvg with all clients in every round, one pass over their texts each.

    With ``training.batch_size: {steps: 1}`` it is McMahan et al.'s,
    one full-batch step a round: with ``sgd`` a gradient step on the mean of the clients' losses, by their numbers of
    texts, which for classifiers is the loss over all texts. A number makes it the
    FedAtt paper's "one epoch of gradient descent" (Ji et al. 2019, section IV-B), of as many steps as there are
    batches."""

    name: Literal["fedsgd"] = "fedsgd"  # type: ignore[assignment]
