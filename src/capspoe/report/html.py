"""Pieces of HTML: images inlined as strips, tables of whatever numbers there are."""

import math
import re
from html import escape
from typing import Any

import numpy as np

from capspoe.figures.svg import as_bytes, data_uri
from capspoe.pictures import visible


def strip(images: np.ndarray, alt: str, gap: int = 2) -> str:
    """Images (rows, columns, H, W, C) in [0, 1] as one <img>, the gaps between them transparent."""
    images = visible(images)
    rows, columns, H, W, C = images.shape
    canvas = np.zeros((rows * (H + gap) - gap, columns * (W + gap) - gap, C + 1), np.uint8)
    for r in range(rows):
        for c in range(columns):
            y, x = r * (H + gap), c * (W + gap)
            canvas[y : y + H, x : x + W, :C] = as_bytes(images[r, c])
            canvas[y : y + H, x : x + W, C] = 255
    height, width = canvas.shape[:2]
    return f'<img src="{data_uri(canvas)}" width="{width}" height="{height}" alt="{escape(alt, quote=True)}">'


def inline(svg: str) -> str:
    """A drawing inside the page, which brings the drawings' style once for all."""
    return re.sub(r"<style>.*?</style>", "", svg, count=1, flags=re.DOTALL)


def wide(svg: str, name: str) -> str:
    """A drawing that a narrow screen scrolls sideways."""
    return f'<div class="wide" tabindex="0" role="region" aria-label="{escape(name, quote=True)}">{inline(svg)}</div>'


def section(anchor: str, heading: str, counterpart: str, content: str) -> str:
    """`counterpart` names the paper's figure, if there is one."""
    paper = f'<p class="paper-figure">{escape(counterpart)}</p>' if counterpart else ""
    return f'<section id="{anchor}">{paper}<h2>{escape(heading)}</h2>\n{content}\n</section>'


def how(command: str) -> str:
    return f'<p class="how">Made by <code>{escape(command)}</code></p>'


def shown(value: Any) -> str:
    """A value as text."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        if math.isfinite(value) and (value.is_integer() or abs(value) >= 1e4) and abs(value) < 1e12:
            return f"{value:,.0f}"
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        few = [shown(v) for v in value[:12]]
        return ", ".join(few) + (f" ... ({len(value)} in all)" if len(value) > 12 else "")
    return str(value)


def _cell(value: Any) -> str:
    """Numbers stand right, so that those of a column can be compared."""
    css = ' class="number"' if isinstance(value, (int, float)) and not isinstance(value, bool) else ""
    return f"<td{css}>{escape(shown(value))}</td>"


def _words(name: Any) -> str:
    return escape(str(name).replace("_", " "))


def pairs_table(values: dict[str, Any], caption: str = "") -> str:
    """Names and values."""
    head = f"<caption>{_words(caption)}</caption>" if caption else ""
    rows = "".join(
        f'<tr><th scope="row">{_words(k)}</th><td>{escape(shown(v))}</td></tr>' for k, v in values.items()
    )
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def matrix_table(rows: dict[str, dict[str, Any]], caption: str = "") -> str:
    """Rows that share their columns, as far as they have them."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    head = f"<caption>{_words(caption)}</caption>" if caption else ""
    top = "<td></td>" + "".join(f'<th scope="col">{_words(c)}</th>' for c in columns)
    body = "".join(
        f'<tr><th scope="row">{_words(name)}</th>{"".join(_cell(row.get(c, "")) for c in columns)}</tr>'
        for name, row in rows.items()
    )
    return f"<table>{head}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def nested_tables(values: Any, name: str = "") -> str:
    """Any nest of dicts, lists and numbers as tables: the innermost two levels are one table."""
    if isinstance(values, list) and values and all(isinstance(v, dict) for v in values):
        values = {str(k + 1): v for k, v in enumerate(values)}
    if not isinstance(values, dict):
        return pairs_table({name or "value": values})
    plain = {k: v for k, v in values.items() if not _nested(v)}
    flat = {
        k: v for k, v in values.items() if isinstance(v, dict) and v and not any(map(_nested, v.values()))
    }
    parts = [pairs_table(plain, name)] if plain else []
    columns = [column for row in flat.values() for column in row]
    if len(set(columns)) > 0.75 * len(columns):  # little in common
        parts += [pairs_table(v, f"{name} {k}".strip()) for k, v in flat.items()]
    elif flat:
        parts.append(matrix_table(flat, name if not plain else ""))
    for key, value in values.items():
        if key not in plain and key not in flat:
            parts.append(nested_tables(value, f"{name} {key}".strip()))
    return "".join(parts)


def _nested(value: Any) -> bool:
    return bool(value) and (
        isinstance(value, dict) or (isinstance(value, list) and all(isinstance(v, dict) for v in value))
    )
