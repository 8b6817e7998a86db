"""Tables of a report as HTML."""

from dashboards.report.svg import clean
from dashboards.report.tables import Field, Table


def as_html(table: Table) -> str:
    """Return a table with its caption, and its notes below. Marked fields are ``strong``."""
    first = table.texts.index(True) if True in table.texts else 0
    heads = "".join(
        f'<th scope="col"{_left(text)}>{clean(head)}</th>' for head, text in zip(table.heads, table.texts, strict=True)
    )
    lines = [
        "".join(
            _cell(one, text, place == first) for place, (one, text) in enumerate(zip(row, table.texts, strict=True))
        )
        for row in table.rows
    ]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    caption = clean(table.caption)
    made = f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody></table>"
    notes = "".join(f'<p class="note">{clean(note)}</p>\n' for note in table.notes)
    return f'<div class="wide" tabindex="0" role="group" aria-label="{caption}">{made}</div>\n{notes}'


def _cell(one: Field, left: bool, heading: bool) -> str:
    said = clean(one.text)
    said = f"<strong>{said}</strong>" if one.strong and said else said
    return f'<th scope="row"{_left(left)}>{said}</th>' if heading else f"<td{_left(left)}>{said}</td>"


def _left(text: bool) -> str:
    return ' class="text"' if text else ""


def figure(drawn: str, table: Table, caption: str = "", wide: bool = False, head: str = "") -> str:
    """Return a plot with the table of its data, which is folded away.

    Args:
        drawn: The plot.
        table: Its data.
        caption: A sentence below it.
        wide: Whether it keeps its size, and can be scrolled.
        head: Its heading.
    """
    drawn = (
        f'<div class="wide" tabindex="0" role="group" aria-label="{clean(table.caption)}">{drawn}</div>'
        if wide
        else drawn
    )
    said = f"<figcaption>{clean(caption)}</figcaption>" if caption else ""
    drawn = f"<h3>{clean(head)}</h3>\n{drawn}" if head else drawn
    return f"<figure>{drawn}{said}<details><summary>Data of this plot</summary>{as_html(table)}</details></figure>\n"
