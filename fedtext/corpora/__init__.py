"""Named corpora. To add one, write its file and name its class here."""

from fedtext.corpora.agnews import AGNewsCorpus
from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.demo import DemoCorpus
from fedtext.corpora.fdu import FDUCorpus
from fedtext.corpora.forum import ForumCorpus
from fedtext.corpora.imdb import IMDBCorpus
from fedtext.corpora.instructions import InstructionCorpus
from fedtext.corpora.iyy import IYYCorpus
from fedtext.corpora.movielens import MovieLensCorpus
from fedtext.corpora.newsgroups20 import Newsgroups20Corpus
from fedtext.corpora.ptb import PTBCorpus
from fedtext.corpora.reddit import RedditCorpus
from fedtext.corpora.sst2 import SST2Corpus
from fedtext.corpora.stackoverflow import StackOverflowCorpus
from fedtext.corpora.table import TableCorpus
from fedtext.corpora.wikitext import WikiText2Corpus

CORPORA: dict[str, type[CorpusConfig]] = {
    "agnews": AGNewsCorpus,
    "demo": DemoCorpus,
    "fdu": FDUCorpus,
    "forum": ForumCorpus,
    "imdb": IMDBCorpus,
    "instructions": InstructionCorpus,
    "iyy": IYYCorpus,
    "movielens": MovieLensCorpus,
    "newsgroups20": Newsgroups20Corpus,
    "ptb": PTBCorpus,
    "reddit": RedditCorpus,
    "sst2": SST2Corpus,
    "stackoverflow": StackOverflowCorpus,
    "table": TableCorpus,
    "wikitext2": WikiText2Corpus,
}
