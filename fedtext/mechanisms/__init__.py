"""Mechanisms of an uplink. To add one, write its file and name its class here."""

from fedtext.mechanisms.base import Mechanism
from fedtext.mechanisms.clip import Clip
from fedtext.mechanisms.gaussian import Gaussian

MECHANISMS: dict[str, type[Mechanism]] = {"clip": Clip, "gaussian": Gaussian}
