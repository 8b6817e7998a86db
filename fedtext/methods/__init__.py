"""Federated methods. To add one, write its file and name its class here."""

from fedtext.methods.apfl import APFL
from fedtext.methods.asp_mtl import ASPMTL
from fedtext.methods.base import Method
from fedtext.methods.ditto import Ditto
from fedtext.methods.fedatt import FedAtt
from fedtext.methods.fedavg import FedAvg
from fedtext.methods.feddyn import FedDyn
from fedtext.methods.fedevocab import FedeVocab
from fedtext.methods.fedfusion import FedFusion
from fedtext.methods.fedmmd import FedMMD
from fedtext.methods.fedper import FedPer
from fedtext.methods.fedprox import FedProx
from fedtext.methods.fedrecon import FedRecon
from fedtext.methods.fedsgd import FedSGD
from fedtext.methods.kteps import KTEPS
from fedtext.methods.lg_fedavg import LGFedAvg
from fedtext.methods.local_only import LocalOnly
from fedtext.methods.pfl_da import PFLDA
from fedtext.methods.pooled import Pooled
from fedtext.methods.scaffold import Scaffold

METHODS: dict[str, type[Method]] = {
    "fedavg": FedAvg,
    "fedsgd": FedSGD,
    "fedatt": FedAtt,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
    "kteps": KTEPS,
    "fedper": FedPer,
    "fedevocab": FedeVocab,
    "fedrecon": FedRecon,
    "lg_fedavg": LGFedAvg,
    "fedfusion": FedFusion,
    "fedmmd": FedMMD,
    "pfl_da": PFLDA,
    "ditto": Ditto,
    "apfl": APFL,
    "asp_mtl": ASPMTL,
    "local_only": LocalOnly,
    "pooled": Pooled,
}
