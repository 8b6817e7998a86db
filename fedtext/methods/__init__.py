"""Federated methods. To add one, write its file and name its class here."""

from fedtext.methods.base import Method
from fedtext.methods.fedavg import FedAvg
from fedtext.methods.fedprox import FedProx
from fedtext.methods.kteps import KTEPS
from fedtext.methods.local_only import LocalOnly
from fedtext.methods.pooled import Pooled

METHODS: dict[str, type[Method]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "kteps": KTEPS,
    "local_only": LocalOnly,
    "pooled": Pooled,
}
