"""Attacks of clients that are adversaries. To add one, write its file and name its class here."""

from fedtext.adversaries.backdoor import Backdoor
from fedtext.adversaries.base import Attack, Collusion
from fedtext.adversaries.label_flip import LabelFlip
from fedtext.adversaries.little_is_enough import LittleIsEnough
from fedtext.adversaries.noise import Noise
from fedtext.adversaries.scaled import Scaled
from fedtext.adversaries.sign_flip import SignFlip

ATTACKS: dict[str, type[Attack]] = {
    "sign_flip": SignFlip,
    "scaled": Scaled,
    "noise": Noise,
    "label_flip": LabelFlip,
    "backdoor": Backdoor,
    "little_is_enough": LittleIsEnough,
}

__all__ = ["ATTACKS", "Attack", "Collusion"]
