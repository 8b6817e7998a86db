"""Texts in plain characters: typographic marks as in ASCII, and punctuation of other scripts between blanks."""

import re
import unicodedata

_ASCII = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2039\u203a\u2032\u2035\u02bc\u00b4\uff07", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033\u2036\u301d\u301e\u301f\uff02", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe32", "-"),
    **dict.fromkeys("\u2014\u2015\ufe31\ufe58", "--"),
    **dict.fromkeys("\u2026\ufe19", "..."),
}
# Signs of numbers and abbreviations, which are format characters with a width.
_VISIBLE = frozenset(map(chr, (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)))
# Selectors of variants, and the joiner of graphemes, which are marks without a width.
_SELECTORS = (0x34F, *range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_INVISIBLE = frozenset(map(chr, _SELECTORS))
# Punctuation within words and numbers: middle dots, points and marks of Hebrew, Armenian, Tibetan and Arabic, and
# those of full width whose plain form is no mark of a sentence.
_WITHIN = frozenset(
    "\u00b7\u0387\u2027\u05f3\u05f4\u055a\u055f\u0f0b\u0f0c\u066b\u066c\uff03\uff05\uff06\uff0a\uff0e\uff0f\uff20\uff3c"
)
_IN_NUMBERS = re.compile(r"(?<=\d)[\uff0c\uff1a](?=\d)")  # comma and colon of full width, as in 12:30


class _Plain(dict[int, str | None]):
    """A table for ``str.translate``: nothing for what has no width, ASCII for marks, blanks around punctuation."""

    def __missing__(self, code: int) -> str | None:
        self[code] = _plain(chr(code))
        return self[code]


def _plain(mark: str) -> str | None:
    kind = unicodedata.category(mark)
    if mark in _INVISIBLE or (kind == "Cf" and mark not in _VISIBLE):
        return None
    if mark.isascii() or mark in _WITHIN:
        return mark
    return _ASCII.get(mark) or (f" {mark} " if kind in ("Po", "Ps", "Pe", "Pi", "Pf") else mark)


_PLAIN = _Plain()


def normalized(text: str) -> str:
    """Return a text in plain characters, in the form NFKC of Unicode.

    Typographic quotation marks, dashes and ellipses become those of ASCII: a long dash is ``--``. Characters without a
    width are removed. Punctuation of other scripts and of full width is set apart by blanks; that of ASCII is not.
    """
    if text.isascii():
        return text
    text = _IN_NUMBERS.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    text = unicodedata.normalize("NFKC", text.translate(_PLAIN))
    return text.translate(_PLAIN)  # NFKC has made some marks, of letters with an apostrophe for example
