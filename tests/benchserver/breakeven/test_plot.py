"""The picture: what is in the figure, and in the files that are made of it."""

from __future__ import annotations

import io
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import image
from matplotlib.axes import Axes

from benchserver.breakeven.model import Hit
from benchserver.breakeven.plot import GIB, curve, drawn, format_of, picture
from benchserver.breakeven.question import Network, Question
from benchserver.errors import UsageError

NETWORKS = tuple(Network(n * GIB, f"{n}GiB/s") for n in (4, 6, 9, 16, 24))
LARGE = Question(
    Hit(payload_bytes=GIB, saved_s=0.12, fixed_s=0.003, device_bytes_per_s=24 * GIB), NETWORKS
)
NEVER = Question(
    Hit(payload_bytes=GIB, saved_s=0.002, fixed_s=0.003, device_bytes_per_s=24 * GIB), NETWORKS
)

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}href"


def legend_of(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def test_the_figure_has_the_model_s_times() -> None:
    (axes,) = drawn(LARGE).axes
    lines = {line.get_gid(): line for line in axes.lines}
    rows = curve(LARGE)
    assert rows[7] == LARGE.hit.over(rows[7].network_bytes_per_s)
    assert rows[0].network_bytes_per_s == pytest.approx(GIB)
    assert rows[-1].network_bytes_per_s == pytest.approx(96 * GIB)
    for name in ("serial", "pipelined"):
        wanted = [
            1e3 * getattr(LARGE.hit.over(row.network_bytes_per_s), f"{name}_s") for row in rows
        ]
        assert list(np.asarray(lines[name].get_ydata())) == pytest.approx(wanted)
        wanted = [1e3 * getattr(LARGE.hit.over(n.bytes_per_s), f"{name}_s") for n in NETWORKS]
        assert list(np.asarray(lines[f"{name}-rows"].get_ydata())) == pytest.approx(wanted)
        turn = LARGE.hit.turns(pipelined=name == "pipelined").network_bytes_per_s / GIB
        assert list(np.asarray(lines[f"{name}-turn"].get_xdata())) == pytest.approx([turn])
    assert list(np.asarray(lines["saved"].get_ydata())) == [120.0, 120.0]
    assert legend_of(axes)[0] == "one leg after the other: pays above 13.27 GiB/s"


def test_a_hit_that_never_pays_has_no_turn() -> None:
    (axes,) = drawn(NEVER).axes
    assert not [line for line in axes.lines if str(line.get_gid()).endswith("-turn")]
    assert legend_of(axes)[1] == "both legs at once: never pays"


def marks_in(svg: bytes, name: str) -> list[tuple[float, float]]:
    """Return where the marks of a line stand."""
    (group,) = (g for g in ElementTree.fromstring(svg).iter(f"{SVG}g") if g.get("id") == name)
    return [
        (float(use.attrib["x"]), float(use.attrib["y"]))
        for use in group.iter(f"{SVG}use")
        if use.get(XLINK)
    ]


def test_the_svg_has_the_model_s_times() -> None:
    svg = picture(LARGE, "svg")
    wanted = [1e3 * getattr(LARGE.hit.over(n.bytes_per_s), f"{name}_s")
              for name in ("serial", "pipelined") for n in NETWORKS]  # fmt: skip
    marks = [*marks_in(svg, "serial-rows"), *marks_in(svg, "pipelined-rows")]
    across, down = np.array(marks).T
    slope, offset = np.polyfit(wanted, down, 1)
    assert slope < -0.5  # up is slower, and the height of the picture is used
    assert slope * np.array(wanted) + offset == pytest.approx(down, abs=0.01)
    rates = [np.log(n.bytes_per_s) for n in NETWORKS] * 2
    slope, offset = np.polyfit(rates, across, 1)
    assert slope * np.array(rates) + offset == pytest.approx(across, abs=0.01)
    assert len(marks_in(svg, "serial-turn")) == 1


def test_the_png_shows_both_curves() -> None:
    content = picture(LARGE, "png")
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    pixels = image.imread(io.BytesIO(content), format="png")[:, :, :3]
    assert pixels.shape == (500, 800, 3)
    for colour in ((31, 119, 180), (255, 127, 14)):
        near = np.abs(pixels * 255 - np.array(colour)).max(axis=2) < 8
        assert near.sum() > 300, colour
        assert np.ptp(np.nonzero(near)[1]) > 400, "it does not go across the picture"


@pytest.mark.parametrize("file_format", ["png", "svg"])
def test_the_same_question_gives_the_same_bytes(file_format: str) -> None:
    assert picture(LARGE, file_format) == picture(LARGE, file_format)
    assert picture(LARGE, file_format) != picture(NEVER, file_format)


@pytest.mark.parametrize("saved_s", [1e-9, 1e6])
def test_extremes_can_be_drawn(saved_s: float) -> None:
    hit = Hit(payload_bytes=1.0, saved_s=saved_s, fixed_s=0.0, device_bytes_per_s=2.0**60)
    assert picture(Question(hit, (Network(1.0, "1B/s"),)), "png")


def test_formats() -> None:
    assert format_of("a/b.png") == "png"
    assert format_of("B.SVG") == "svg"
    for path in ("a.pdf", "png", "", "a.png.gz"):
        with pytest.raises(UsageError, match=r"ends in \.png or \.svg"):
            format_of(path)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError) as caught:
        format_of("a.png")
    assert "--plot needs matplotlib" in str(caught.value)
    assert "pip install 'bench-server[report]'" in str(caught.value)
