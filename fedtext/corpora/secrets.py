"""Secrets that are planted in train texts, to measure what a language model memorises (Carlini et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field, field_validator

from fedtext.corpora.types import RawClient, Split
from fedtext.errors import UserError
from fedtext.schema import Strict
from fedtext.seeding import generator
from fedtext.text.tokens import BOS, EOS, split_words

KEY = "corpus.secrets"
DIGITS = tuple("0123456789")
_NAME = "{}"  # in a prefix: the word that tells a secret from the others


@dataclass(frozen=True)
class Secret:
    """A secret.

    Attributes:
        prefix: The words before it.
        digits: Its digits, drawn uniformly.
        insertions: Number of times that a client who has it has it among its train texts; 0: a control, which is
            planted nowhere.
    """

    prefix: tuple[str, ...]
    digits: tuple[str, ...]
    insertions: int

    @property
    def sentence(self) -> str:
        """The sentence that is planted."""
        return " ".join((BOS, *self.prefix, *self.digits, EOS))


class Secrets(Strict):
    """Secrets in train texts: sentences that end in digits which are drawn at random (Carlini et al. 2019).

    Each secret has a word of its own in its prefix, so that secrets do not compete with each other. Besides those that
    are planted there are as many controls of the same format that are planted nowhere. All words of the format are in
    the vocabulary. The audit ``exposure`` measures how well the model knows the digits.
    """

    insertions: tuple[int, ...] = Field(
        (1, 4, 16),
        min_length=1,
        max_length=20,
        description="how often a secret stands among the train texts of a client who has it; for each number there are "
        "other secrets",
    )
    each: int = Field(4, ge=1, le=100, description="number of secrets for each number of insertions, and of controls")
    clients: int = Field(1, ge=1, description="number of clients who have the same secret, drawn from the seed")
    digits: int = Field(6, ge=1, le=7, description="digits of a secret: there are 10^digits candidates")
    prefix: str = Field(
        "the pin of {} is", description="words before the digits; {} becomes a word of the secret's own"
    )

    @field_validator("insertions")
    @classmethod
    def _told_apart(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value) or not all(1 <= number <= 10_000 for number in value):
            raise ValueError(
                "they must be different numbers from 1 to 10,000 (controls, which have 0, are always there)"
            )
        return value

    @field_validator("prefix")
    @classmethod
    def _names_a_secret(cls, value: str) -> str:
        words = value.split()
        if words.count(_NAME) != 1 or value.count("{") + value.count("}") != 2 or value != value.lower():
            raise ValueError("write lower-case words with one {} among them, such as: the pin of {} is")
        if {BOS, EOS, *DIGITS} & set(words):
            raise ValueError(f"{BOS}, {EOS} and digits would be taken for other parts of the sentence: leave them out")
        return value

    @property
    def length(self) -> int:
        """Number of tokens of a sentence, with <s> and </s>."""
        return len(self.prefix.split()) + self.digits + 2

    def drawn(self, seed: int) -> list[Secret]:
        """Return all secrets, controls last.

        Args:
            seed: The experiment's seed.
        """
        found = []
        for insertions in (*sorted(self.insertions), 0):
            rng = generator(seed, f"secrets/{insertions}")
            for number in range(self.each):
                name = f"control{number}" if not insertions else f"secret{insertions}x{number}"
                digits = tuple(DIGITS[digit] for digit in rng.integers(0, 10, self.digits))
                prefix = tuple(name if word == _NAME else word for word in self.prefix.split())
                found.append(Secret(prefix, digits, insertions))
        return found

    def words(self, seed: int) -> list[str]:
        """Return the words of all secrets, each once."""
        return list(dict.fromkeys((*DIGITS, *(word for secret in self.drawn(seed) for word in secret.prefix))))

    def plant(self, clients: Sequence[RawClient], seed: int) -> list[RawClient]:
        """Return the clients with secrets after their train texts.

        Args:
            clients: The clients.
            seed: The experiment's seed.

        Raises:
            UserError: There are fewer clients than are to have a secret, or a name is a word of their texts.
        """
        if self.clients > len(clients):
            raise UserError(
                f"corpus.secrets.clients: {self.clients} clients are to have a secret, and there are {len(clients)}: "
                "lower it"
            )
        given: list[list[str]] = [[] for _ in clients]
        names = {word for secret in self.drawn(seed) for word in secret.prefix} - set(self.prefix.split())
        for client in clients:
            for split in (client.train, client.validation, client.test):
                if known := sorted(names & {word for text in split.texts for word in split_words(text)}):
                    raise UserError(f"corpus.secrets: {known[0]!r} is a word of {client.name}: use another corpus")
        rng = generator(seed, "secrets/holders")
        for secret in self.drawn(seed):
            for holder in rng.permutation(len(clients))[: self.clients] if secret.insertions else ():
                given[holder] += [secret.sentence] * secret.insertions
        return [
            replace(client, train=_with(client.train, texts)) if texts else client
            for client, texts in zip(clients, given, strict=True)
        ]

    def told(self) -> str:
        """Return a sentence about what is planted."""
        counts = ", ".join(map(str, sorted(self.insertions)))
        holders = "one client" if self.clients == 1 else f"each of {self.clients} clients"
        return (
            f"{self.each * len(self.insertions)} sentences that are not the corpus's own are planted in train texts, "
            f"each with {self.digits} random digits, {counts} times with {holders}; results are of the corpus with "
            "these"
        )


def _with(split: Split, texts: list[str]) -> Split:
    return Split([*split.texts, *texts], np.concatenate([split.labels, np.zeros(len(texts), np.int64)]))
