"""Mechanisms of an uplink. To add one, write its file and name its class here."""

from fedtext.mechanisms.base import Mechanism
from fedtext.mechanisms.clip import Clip
from fedtext.mechanisms.gaussian import Gaussian
from fedtext.mechanisms.project import Project
from fedtext.mechanisms.quantize import Quantize
from fedtext.mechanisms.randomized_response import RandomizedResponse

MECHANISMS: dict[str, type[Mechanism]] = {
    "clip": Clip,
    "gaussian": Gaussian,
    "project": Project,
    "quantize": Quantize,
    "randomized_response": RandomizedResponse,
}
