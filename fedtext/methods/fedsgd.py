"""FedSGD (McMahan et al. 2017, section 2): all clients in every round, with one pass over their texts each."""

from typing import Literal

from fedtext.methods.fedavg import FedAvg


class FedSGD(FedAvg):
    """FedSGD (McMahan et al. 2017): FedAvg with all clients in every round, one pass over their texts each.

    With ``training.batch_size: {steps: 1}`` it is the FedSGD of McMahan et al., one full-batch step in each round: with
    ``sgd`` a gradient step on the mean of the clients' losses weighted by their numbers of texts, which for classifiers
    is the loss over all texts. With a number it is "one epoch of gradient descent" as in the FedAtt paper (Ji et al.
    2019, section IV-B), with one step for each batch.
    """

    name: Literal["fedsgd"] = "fedsgd"  # type: ignore[assignment]
