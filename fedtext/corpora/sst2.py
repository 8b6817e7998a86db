"""SST-2: film reviews, positive or negative (Socher et al., EMNLP 2013; FedeVocab paper, Table 1)."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from fedtext.corpora.labelled import LabelledCorpus, file_sides, find_table, hub_sides
from fedtext.corpora.types import RawCorpus
from fedtext.seeding import generator

FILE = "sst2.parquet"
HUB = "stanfordnlp/sst2"  # GLUE's, whose test texts have no labels
HUB_TEST = "SetFit/sst2"


class SST2Corpus(LabelledCorpus):
    """SST-2: phrases and sentences of film reviews, two classes (FedeVocab paper).

    Read from sst2.parquet (columns split, label, text), in a folder ``sst2`` or directly in the data folder, else
    from the hub: train and dev of stanfordnlp/sst2, test of SetFit/sst2.

    The paper's 67k train texts are those of GLUE, which include phrases of sentences; its 1.8k test texts are the 1,821
    sentences of the Stanford test set, since GLUE does not publish its test labels. The sentences of phrases held out
    of train would remain in train, so dev (872 sentences) is used for selection, split over the clients like test.
    """

    name: Literal["sst2"] = "sst2"
    files = (FILE,)
    labels = 2  # 0 negative, 1 positive
    label_names = ("negative", "positive")
    segmented = True
    max_length: int | None = Field(32, ge=1, description="words kept of each text, from its beginning; null: all")
    validation: float = Field(0.0, ge=0.0, le=1.0, description="share of the 872 dev sentences used for selection")
    brings_validation = True

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        path = find_table("sst2", [FILE], data)
        if path is not None:
            sides = file_sides(path, self.labels)
        else:
            train = hub_sides("sst2", HUB, self.labels, FILE, data, ("train", "validation"), "sentence")
            test = hub_sides("sst2", HUB_TEST, self.labels, FILE, data, ("test",))
            sides = {"train": train["train"], "dev": train["validation"], "test": test["test"]}
        validation = None
        if self.validation:
            validation = sides["dev"].sample(self.validation, generator(seed, "validation"))
        return self.dealt(sides["train"], sides["test"], seed, validation)
