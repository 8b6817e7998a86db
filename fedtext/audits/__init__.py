"""Audits. To add one, write its file and name its class here."""

from fedtext.audits.base import Audit
from fedtext.audits.word_relations import WordRelations

AUDITS: dict[str, type[Audit]] = {"word_relations": WordRelations}
