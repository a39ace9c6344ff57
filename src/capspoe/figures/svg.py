"""SVG as text: elements, inlined images, and the classes that give every drawing its colours.

Colours are plain classes rather than variables, because viewers other than browsers know no variables. A dark
page gets a dark drawing: where white paper shows a value as darkness, black paper shows it as light.
"""

import base64
import io
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from capspoe.durable import write_atomically, writing
from capspoe.pictures import visible

STYLE = """
.capspoe { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.capspoe .paper { fill: #ffffff; } .capspoe .panel { fill: #f3f5f8; } .capspoe .text { fill: #17202b; }
.capspoe .quiet { fill: #566373; } .capspoe .ink { fill: #1d3557; } .capspoe .accent { fill: #b8430a; }
.capspoe .line { stroke: #8b98a8; fill: none; } .capspoe .edge { stroke: #33475f; fill: none; }
.capspoe .haze-accent { fill: #d9580d; }
.capspoe .edge-accent { stroke: #c84a08; fill: none; } .capspoe .frame { stroke: #c3ccd6; fill: none; }
.capspoe .box { fill: #e3e9f1; stroke: #5d6f85; } .capspoe .box-side { fill: #cbd6e3; stroke: #5d6f85; }
.capspoe .box-top { fill: #f1f4f8; stroke: #5d6f85; } .capspoe .arrow { fill: #5d6f85; }
.capspoe .series-0 { stroke: #1d5fa8; fill: none; } .capspoe .series-1 { stroke: #b8430a; fill: none; }
.capspoe .many { stroke: #1d5fa8; fill: none; stroke-opacity: .4; }
@media (prefers-color-scheme: dark) {
  .capspoe .paper { fill: #12171e; } .capspoe .panel { fill: #1c232d; } .capspoe .text { fill: #e8edf3; }
  .capspoe .quiet { fill: #a3b0bf; } .capspoe .ink { fill: #cfe0f7; } .capspoe .accent { fill: #ff9d5c; }
  .capspoe .line { stroke: #64717f; } .capspoe .edge { stroke: #b9c8da; }
  .capspoe .haze-accent { fill: #ff9d5c; } .capspoe .edge-accent { stroke: #ff9d5c; }
  .capspoe .frame { stroke: #3b4653; } .capspoe .box { fill: #2a3645; stroke: #8fa3ba; }
  .capspoe .box-side { fill: #1f2935; stroke: #8fa3ba; } .capspoe .box-top { fill: #34435a; stroke: #8fa3ba; }
  .capspoe .arrow { fill: #8fa3ba; } .capspoe .series-0 { stroke: #7db4f0; }
  .capspoe .series-1 { stroke: #ff9d5c; } .capspoe .many { stroke: #7db4f0; }
}
""".strip()


def number(value: float) -> str:
    """A coordinate, as short as it can be."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def tag(name: str, content: str = "", **attributes: Any) -> str:
    """An element. A trailing underscore of an attribute is dropped, others become hyphens; None leaves it out."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            text = number(value) if isinstance(value, (int, float)) else escape(str(value), quote=True)
            words.append(f'{key.rstrip("_").replace("_", "-")}="{text}"')
    head = " ".join(words)
    return f"<{head}>{content}</{name}>" if content else f"<{head}/>"


def text(x: float, y: float, words: str, size: float = 13, class_: str = "text", **attributes: Any) -> str:
    return tag("text", escape(words), x=x, y=y, font_size=size, class_=class_, **attributes)


def document(width: float, height: float, title: str, description: str, body: str) -> str:
    """A whole drawing that also stands alone as a file; `description` says in words what it shows."""
    head = f"<title>{escape(title)}</title><desc>{escape(description)}</desc><style>{STYLE}</style>"
    paper = tag("rect", width=width, height=height, class_="paper")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="capspoe" viewBox="0 0 {number(width)} {number(height)}" '
        f'width="{number(width)}" height="{number(height)}" role="img">{head}{paper}{body}</svg>\n'
    )


def write_svg(svg: str, path: Path) -> None:
    """Write a drawing; the folder is made if need be."""
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, svg.encode())


def png_bytes(picture: np.ndarray) -> bytes:
    """uint8 (H, W), (H, W, 1), 3 or 4 channels as a PNG; two channels are grey and alpha."""
    if picture.ndim == 3 and picture.shape[-1] == 1:
        picture = picture[..., 0]
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def data_uri(picture: np.ndarray) -> str:
    return "data:image/png;base64," + base64.b64encode(png_bytes(picture)).decode()


def as_bytes(image: np.ndarray) -> np.ndarray:
    """Floats in [0, 1] as uint8."""
    return (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)


def picture(x: float, y: float, side: float, image: np.ndarray, **attributes: Any) -> str:
    """An image (H, W, C) in [0, 1], as wide as `side`, its pixels kept sharp."""
    height = side * image.shape[0] / image.shape[1]
    return tag(
        "image", x=x, y=y, width=side, height=height, href=data_uri(as_bytes(visible(image))),
        preserveAspectRatio="none", style="image-rendering:pixelated", **attributes,
    )  # fmt: skip
