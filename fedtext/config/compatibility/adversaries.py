"""Requirements of attacks on the rest of an experiment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.adversaries import Collusion
from fedtext.adversaries.backdoor import Backdoor
from fedtext.config.compatibility.aggregation import silent

if TYPE_CHECKING:
    from fedtext.config.settings import Settings


def attack_by_updates(e: "Settings") -> Iterator[str]:
    """Check that clients send updates, by which they can attack."""
    if e.adversaries and (why := silent(e)):
        yield f"adversaries: method {e.method.name} {why}, so that no client can attack: leave them out"


def attacked_labels(e: "Settings") -> Iterator[str]:
    """Check that there are labels for attacks that change them."""
    if e.adversaries and e.adversaries.attack.reads_labels and e.language:
        yield (
            f"adversaries.attack: {e.adversaries.attack.name} is for classifiers, and {e.model.name} predicts words: "
            "use another attack"
        )


def trigger_words(e: "Settings") -> Iterator[str]:
    """Check that the words of a backdoor can be inserted into texts."""
    attack = e.adversaries and e.adversaries.attack
    if not isinstance(attack, Backdoor):
        return
    if e.own_vocabularies:
        yield (
            "adversaries.attack: backdoor inserts words that all clients have in common, and here clients have "
            "vocabularies of their own: set corpus.own_vocabularies to false, or use another attack"
        )
    if e.corpus.text.name == "hash":
        yield (
            "adversaries.attack: backdoor inserts words, and corpus.text: hash keeps none: use corpus.text=words, or "
            "another attack"
        )
    if attack.words == "auto" and not e.corpus.counts_words:
        yield (
            "adversaries.attack.words: auto is the rarest word, and the vocabulary of corpus.text: "
            f"{e.corpus.text.name} is in no such order: name the words"
        )


def collusion(e: "Settings") -> Iterator[str]:
    """Check that no mechanism is passed by: updates that adversaries choose together are not encoded again."""
    if e.adversaries and isinstance(e.adversaries.attack, Collusion) and e.uplink:
        yield (
            f"adversaries.attack: {e.adversaries.attack.name} replaces updates after they were received, which passes "
            f"by {e.uplink[0].name}: leave out uplink, or use another attack"
        )


RULES = (attack_by_updates, attacked_labels, trigger_words, collusion)
