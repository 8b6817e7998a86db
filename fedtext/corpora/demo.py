"""The built-in corpus: short reviews of several product domains, one client each, generated in memory.

It shows the typical effects of federated learning within a minute:

* Most labels follow from one or two general words ("superb", "dreadful"). There are many such words, and a client's
  train split contains only some of them, so clients learn more together than alone.
* Some labels depend on a flip word alone, whose polarity differs between domains: an "unpredictable" plot is praise,
  "unpredictable" steering is not. Each flip word is praise in half of the domains (for an even number of clients), so
  one global model can only guess, unless the text reveals its domain.
* Domains have their own topic words, lengths and label balance (non-IID). But half of the texts contain no topic word,
  so that even a global model with a perfect memory cannot resolve their flip words. A private classifier can.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.types import RawClient, RawCorpus, Split
from fedtext.seeding import generator
from fedtext.text.tokens import Unlabeled

_TOPIC_SHARE = 0.5  # share of texts with one or two topic words
_FLIP_GROUPS = (
    "unpredictable surprising strange unusual",
    "quiet soft gentle calm",
    "small short light thin",
    "simple plain bare basic",
)
# Domain, the polarity of each flip group there, mean number of neutral sentences, topic words. Neighbours have opposite
# polarities, so any even number of domains is balanced.
_DOMAINS = (
    ("appliances", "-+++", 0.8, "kettle toaster blender oven fridge filter motor lid timer dishwasher plug handle"),
    ("films", "+---", 1.6, "plot actor director scene ending dialogue camera cast sequel screenplay villain trailer"),
    ("speakers", "--++", 1.2, "bass volume treble cable amplifier remote bluetooth subwoofer signal woofer knob jack"),
    ("books", "++--", 2.2, "chapter author novel narrator page prose paperback hero epilogue writer cover character"),
    ("cameras", "--+-", 1.0, "lens flash zoom shutter battery tripod sensor viewfinder focus aperture strap autofocus"),
    ("music", "++-+", 0.5, "song album singer chorus lyrics guitar drummer melody track band verse vocals"),
    ("laptops", "-++-", 1.4, "keyboard screen fan trackpad processor charger hinge webcam memory driver port display"),
    ("games", "+--+", 1.8, "level boss quest controller graphics puzzle player weapon map console mission avatar"),
)
_POSITIVE = (
    "superb excellent wonderful delightful terrific fantastic brilliant marvelous splendid outstanding remarkable "
    "impressive lovely charming pleasing satisfying amazing awesome fabulous exquisite magnificent glorious stunning "
    "perfect flawless ideal great good fine nice admirable commendable praiseworthy exceptional extraordinary "
    "phenomenal sensational stellar sublime elegant graceful polished refined masterful ingenious clever thoughtful "
    "helpful dependable reliable sturdy solid trustworthy worthwhile rewarding enjoyable pleasant agreeable likable "
    "lovable"
)
_NEGATIVE = (
    "dreadful terrible horrible awful atrocious abysmal appalling disastrous disappointing frustrating annoying "
    "irritating infuriating maddening tedious boring dull dreary lifeless bland stale tiresome tired weak poor bad "
    "lousy shoddy flimsy cheap defective faulty broken useless worthless pointless senseless mindless stupid silly "
    "ridiculous laughable pathetic pitiful sad miserable wretched dismal bleak grim gloomy unpleasant nasty vile "
    "disgusting revolting repulsive hideous ugly clumsy"
)
_VERDICTS = (
    "it is {very} {w} .", "overall it felt {w} .", "i found it {very} {w} .", "this one turned out {w} .",
    "my wife calls it {w} .", "to me it was {very} {w} .", "we all thought it was {w} .", "{w} is the word for it .",
    "what {a} {w} thing !", "{a} {w} purchase , i must say .",
)  # fmt: skip
_ABOUT_TOPIC = (
    "the {t} is what i noticed first .", "i read about the {t} before .", "there is also the {t} .",
    "my brother asked about the {t} .", "then came the {t} .", "you will see the {t} at once .",
)  # fmt: skip
_NEUTRAL = (
    "i bought it in march .", "it arrived on a tuesday .", "we had it for two weeks .", "my sister has one too .",
    "it was a present from a friend .", "i had seen it in the window .", "this is my second one .",
    "we tried it at home .", "i took it with me on a trip .", "the box was brown .", "i looked at it again today .",
    "my neighbor told me about it .", "it has been on the table since .", "we talked about it at dinner .",
    "i waited a month before i wrote this .", "it came with a letter .", "others have said more about it .",
    "i paid with a card .", "you can order it online .", "that is all i have to say .",
)  # fmt: skip
_INTENSIFIERS = ("very", "quite", "really", "rather", "truly", "so", "just", "simply")


@dataclass(frozen=True)
class _Domain:
    """The distribution of one client's texts."""

    name: str
    flips: dict[int, list[str]]  # label -> flip words with this polarity in the domain
    sentences: float
    topics: list[str]
    positive: float  # share of positive texts


class DemoCorpus(CorpusConfig):
    """Synthetic reviews of several domains, two classes, generated from the seed without any file."""

    name: Literal["demo"] = "demo"
    label_names = ("negative", "positive")
    segmented = True
    clients: int = Field(
        8, ge=1, description="number of clients, one domain each; beyond 8 domains repeat, with other texts"
    )
    train: int = Field(200, ge=2, description="texts per client")
    test: int = Field(100, ge=1, description="texts per client")
    flip: float = Field(0.3, ge=0, le=1, description="share of texts whose label depends on a flip word alone")
    noise: float = Field(0.02, ge=0, le=0.5, description="share of labels that are wrong")

    @property
    def draws_clients(self) -> bool:
        return True

    def clients_of(self, seed: int) -> Set[str]:
        return {f"{self.name} {seed}"}  # the first ones are the same, however many there are

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        clients = []
        for number in range(self.clients):
            domain = _domain(number, seed)
            train, test = (
                self._draw_split(domain, size, generator(seed, f"demo {side}", client=number))
                for side, size in (("train", self.train), ("test", self.test))
            )
            clients.append(RawClient(domain.name, train, test))
        return RawCorpus(self.name, 2, clients)

    @property
    def generated(self) -> int:
        return self.clients * (self.train + self.test)

    @property
    def unlabeled(self) -> Literal["none", "local", "remote"]:
        return "local"

    def read_unlabeled(self, data: Path | None, seed: int) -> list[Unlabeled]:
        """Generate texts of all domains, as many as in train but different ones."""
        return [
            Unlabeled(text)
            for number in range(self.clients)
            for text in self._draw_split(
                _domain(number, seed), self.train, generator(seed, "demo unlabeled", client=number)
            ).texts
        ]

    def _draw_split(self, domain: _Domain, size: int, draw: np.random.Generator) -> Split:
        pairs = [_review(domain, self.flip, self.noise, draw) for _ in range(size)]
        return Split([text for text, _ in pairs], np.array([label for _, label in pairs], np.int64))


def _domain(number: int, seed: int) -> _Domain:
    name, signs, sentences, topics = _DOMAINS[number % len(_DOMAINS)]
    flips: dict[int, list[str]] = {0: [], 1: []}
    for sign, group in zip(signs, _FLIP_GROUPS, strict=True):
        flips[int(sign == "+")] += group.split()
    copy = number // len(_DOMAINS)
    positive = generator(seed, "demo balance", client=number).uniform(0.35, 0.65)
    return _Domain(f"{name}-{copy + 1}" if copy else name, flips, sentences, topics.split(), positive)


def _review(domain: _Domain, flip: float, noise: float, draw: np.random.Generator) -> tuple[str, int]:
    """Draw a text and its label: sentences with one or two polarity words among neutral sentences."""
    label = int(draw.random() < domain.positive)
    general = _POSITIVE if label else _NEGATIVE
    words = domain.flips[label] if draw.random() < flip else general.split()
    sentences = [_verdict(word, draw) for word in _some(words, int(draw.integers(1, 3)), draw)]
    sentences += _some(_NEUTRAL, int(draw.poisson(domain.sentences)), draw)
    if draw.random() < _TOPIC_SHARE:
        topics = _some(domain.topics, int(draw.integers(1, 3)), draw)
        sentences += [
            about.format(t=topic) for about, topic in zip(_some(_ABOUT_TOPIC, len(topics), draw), topics, strict=True)
        ]
    text = " ".join(_some(sentences, len(sentences), draw))
    return text, label ^ int(draw.random() < noise)


def _verdict(word: str, draw: np.random.Generator) -> str:
    template, very = _some(_VERDICTS, 1, draw)[0], _some(_INTENSIFIERS, 1, draw)[0]
    return template.format(w=word, very=very, a="an" if word[0] in "aeiou" else "a")


def _some(items: Sequence[str], count: int, draw: np.random.Generator) -> list[str]:
    """Draw ``count`` different items (all, if there are fewer) in random order."""
    return [items[i] for i in draw.permutation(len(items))[:count].tolist()]
