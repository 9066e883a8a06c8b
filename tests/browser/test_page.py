"""Pages in a real browser: nothing on the console, nothing over the network, dark where it should be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnx_sched
from onnx_sched.report.html import to_html
from tests.browser.chromium import SCALE, Pixels, browser, dom, look
from tests.pages import HOSTILE, Page, towers

MODELS = Path(__file__).parent.parent.parent / "models"
PHONE, DESK = (390, 3600), (1200, 500)
NARROWEST = 500
"""The browser has no narrower windows: what is to be narrower stands in a frame."""


pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browser() is None, reason="there is no Chromium on the PATH"),
]


@pytest.fixture(scope="module", name="pages")
def _pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages to look at: a measured run, an unchanged one, and one with names from hell."""
    folder = tmp_path_factory.mktemp("pages")
    runs = {
        "raced": onnx_sched.optimize(
            MODELS / "critic_ensemble.onnx", provider="cpu", dims={"batch": (1,)}, threads=(1,)
        ),
        "unchanged": onnx_sched.optimize(MODELS / "near_dynamic_dims.onnx", check=False),
        "hostile": onnx_sched.optimize(
            towers(9, 5, HOSTILE, odd=True), choose="always", check=False
        ),
    }
    found = {}
    for name, result in runs.items():
        found[name] = folder / f"{name}.html"
        html = to_html(result.scene(), f"onnx-sched optimize {HOSTILE[0]}")
        found[name].write_text(html, "utf-8")
    return found


def brightness(shown: Pixels) -> float:
    return float(shown.astype(np.float64).mean())


def framed(page: Path, width: int, height: int, folder: Path) -> Path:
    """The page itself, or where it must be narrow, in a frame."""
    if width >= NARROWEST:
        return page
    frame = folder / "frame.html"
    frame.write_text(
        '<meta name="color-scheme" content="light dark"><body style="margin:0">'
        f'<iframe src="{page.as_uri()}" width="{width}" height="{height}" '
        'style="border:0" scrolling="no"></iframe>',
        "utf-8",
    )
    return frame


@pytest.mark.parametrize(
    ("name", "size", "dark"),
    [
        ("raced", DESK, False),
        ("raced", PHONE, True),
        ("hostile", DESK, True),
        ("unchanged", DESK, False),
    ],
)
def test_page(
    name: str, size: tuple[int, int], dark: bool, pages: dict[str, Path], tmp_path: Path
) -> None:
    """Light and dark, wide and narrow: a silent console, no request, all within the window."""
    width, height = size
    page = framed(pages[name], width, height, tmp_path)
    seen = look(page, tmp_path, max(width, NARROWEST), height, dark=dark)
    assert seen.console == []
    assert seen.requests == []
    shown = seen.pixels[:, : int(width * SCALE)]
    assert shown.shape == (height * SCALE, width * SCALE, 3)
    assert (brightness(shown) < 70) if dark else (brightness(shown) > 190)
    edge = shown[:, -4:].reshape(-1, 3)
    assert len(np.unique(edge, axis=0)) == 1  # the page's margin, from top to bottom
    assert len(np.unique(shown[:, 20:-20].reshape(-1, 3), axis=0)) > 20


def test_the_browser_sees_no_more(pages: dict[str, Path], tmp_path: Path) -> None:
    """The browser finds the elements that stand in the file, and no script among them."""
    html = pages["hostile"].read_text("utf-8")
    seen = Page(dom(pages["hostile"], tmp_path))
    known = {"html", "head", "body", "tbody"}
    assert [t for t, _ in seen.tags if t not in known] == [
        t for t, _ in Page(html).tags if t not in known
    ]
    assert "script" not in {tag for tag, _ in seen.tags}
    assert HOSTILE[0] in seen.text


def test_this_would_be_seen(tmp_path: Path) -> None:
    """A page that talks, asks or is too wide is found out."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<body style='margin:12px'><script>console.log('hello')</script>"
        "<img src='http://example.invalid/x.png'><div style='width:900px;background:red'>wide</div>",
        "utf-8",
    )
    seen = look(page, tmp_path, NARROWEST, 200)
    assert any("hello" in text for text in seen.console)
    assert seen.requests == ["http://example.invalid/x.png"]
    assert len(np.unique(seen.pixels[:, -4:].reshape(-1, 3), axis=0)) > 1
