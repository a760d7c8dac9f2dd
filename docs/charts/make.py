#!/usr/bin/env python3
"""Draws the bar charts of docs/benchmarks.md from figures.json as SVG files beside it.

usage: docs/charts/make.py [--check]

--check writes nothing. It fails if a file differs from its figures, or if a figure is not in BENCHMARKS.md.
"""

import json
import pathlib
import re
import sys
from xml.sax.saxutils import escape

HERE = pathlib.Path(__file__).resolve().parent
BENCHMARKS = HERE.parents[1] / "BENCHMARKS.md"

WIDTH = 720
LABEL_WIDTH = 210
VALUE_WIDTH = 140
MARGIN = 14
BAR_HEIGHT = 22
GAP = 10
TOP = 62

# A chart has its own background, because the theme of a page may differ from that of the system.
STYLE = """
  .panel { fill: #ffffff; }
  text { font: 13px system-ui, sans-serif; fill: #3b4252; }
  .title { font-size: 16px; font-weight: 600; }
  .subtitle { fill: #6b7280; }
  .label { text-anchor: end; }
  .own { fill: #c2571a; }
  .peer { fill: #7b8794; }
  .axis { stroke: #9aa5b1; }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #1c2128; }
    text { fill: #d8dee9; }
    .subtitle { fill: #9aa5b1; }
    .own { fill: #f0883e; }
    .peer { fill: #6e7a89; }
  }
"""


def format_value(value):
    """Formats a number with thousands separators, as BENCHMARKS.md does."""
    return f"{value:,}"


def draw(chart):
    """Draws one chart as the text of an SVG file."""
    bars = chart["bars"]
    largest = max(value for _, value in bars)
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    height = TOP + len(bars) * (BAR_HEIGHT + GAP)
    description = "; ".join(f"{name} {format_value(value)} {chart['unit']}" for name, value in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-MARGIN} {-MARGIN} {WIDTH + 2 * MARGIN} '
        f'{height + 2 * MARGIN}" role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(chart["title"])}</title>',
        f'<desc id="d">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="panel" x="{-MARGIN}" y="{-MARGIN}" width="{WIDTH + 2 * MARGIN}" '
        f'height="{height + 2 * MARGIN}" rx="8"/>',
        f'<text class="title" x="0" y="20">{escape(chart["title"])}</text>',
        f'<text class="subtitle" x="0" y="42">{escape(chart["subtitle"])}</text>',
    ]
    for index, (name, value) in enumerate(bars):
        y = TOP + index * (BAR_HEIGHT + GAP)
        length = round(room * value / largest, 1)
        kind = "own" if "feedline" in name else "peer"
        middle = y + BAR_HEIGHT / 2 + 5
        text = f"{format_value(value)} {chart['unit']}"
        lines += [
            f'<text class="label" x="{LABEL_WIDTH - 10}" y="{middle}">{escape(name)}</text>',
            f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{y}" width="{length}" height="{BAR_HEIGHT}" rx="2"/>',
            f'<text x="{LABEL_WIDTH + length + 8}" y="{middle}">{escape(text)}</text>',
        ]
    bottom = height - GAP
    lines += [f'<line class="axis" x1="{LABEL_WIDTH}" y1="{TOP - 4}" x2="{LABEL_WIDTH}" y2="{bottom}"/>', "</svg>"]
    return "\n".join(lines) + "\n"


def find_missing(charts):
    """Lists the figures that BENCHMARKS.md does not have."""
    text = BENCHMARKS.read_text(encoding="utf-8")
    known = set(re.findall(r"\d[\d,]*(?:\.\d+)?", text))
    missing = []
    for name, chart in charts.items():
        for bar, value in chart["bars"]:
            if not known & {format_value(value), str(value)}:
                missing.append(f"{name}: {bar} {format_value(value)}")
    return missing


def main():
    charts = json.loads((HERE / "figures.json").read_text(encoding="utf-8"))
    problems = [f"not in BENCHMARKS.md: {figure}" for figure in find_missing(charts)]
    for name, chart in charts.items():
        path, svg = HERE / f"{name}.svg", draw(chart)
        if "--check" not in sys.argv:
            path.write_text(svg, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != svg:
            problems.append(f"{path.name} is not what figures.json gives; run docs/charts/make.py")
    print("\n".join(problems), end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
