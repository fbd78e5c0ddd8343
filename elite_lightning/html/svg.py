"""From a matplotlib figure to SVG within a page: its colours are the page's, ids are unique, and nothing is fetched."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

_LINK = "{http://www.w3.org/1999/xlink}href"


def svg_of(figure: Figure, key: str, title: str, variables: Mapping[str, str]) -> str:
    """Write a figure as an `<svg>` element for an HTML page.

    Args:
        figure: What was drawn, with the colours of a light page.
        key: Unique within the page; put before every id.
        title: What the picture shows, for those who cannot see it.
        variables: Colour as `#rrggbb` to the name of the CSS variable that takes its place, such as `--ink`.
    """
    buffer = io.StringIO()
    # Text stays text: small, searchable, in the page's own font. A fixed salt makes equal pictures equal bytes.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in root.iter():
        for child in [c for c in parent if _plain(c.tag) in ("metadata", "style")]:
            parent.remove(child)
    for element in root.iter():
        element.tag = _plain(element.tag)
        element.attrib = {_plain(n): _attribute(_plain(n), v, key, variables) for n, v in element.attrib.items()}
        element.tail = None
    root.attrib = {"viewBox": root.attrib["viewBox"], "class": "picture", "role": "img"}
    named = ElementTree.Element("title")
    named.text = title
    root.insert(0, named)
    return ElementTree.tostring(root, encoding="unicode")


def _plain(name: str) -> str:
    """A name without its namespace, as HTML writes SVG."""
    return name.rpartition("}")[2]


def _attribute(name: str, value: str, key: str, variables: Mapping[str, str]) -> str:
    if name == "id":
        return f"{key}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{key}-{value[1:]}"
    value = value.replace("url(#", f"url(#{key}-")
    if name == "style":
        value = re.sub(r"font: ([\d.]+px)[^;]*", r"font-size: \1", value)
        value = re.sub(r"#[0-9a-fA-F]{6}\b", lambda found: _variable(found[0], variables), value)
    return value


def _variable(colour: str, variables: Mapping[str, str]) -> str:
    name = variables.get(colour.lower())
    return colour if name is None else f"var({name})"
