"""A page looked at in Chromium: what it says, what it asks for, what it looks like."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SCALE = 0.5
"""Pixels of a picture to those of the page: enough to see what is to be seen."""

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    f"--force-device-scale-factor={SCALE}",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
)
OWN = (".google.com", ".googleapis.com", ".gvt1.com")
"""Hosts that the browser asks by itself, whatever the page."""

Pixels = NDArray[np.uint8]


def browser() -> str | None:
    """The browser, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass(frozen=True)
class Sight:
    """What was seen of a page: console lines, requests beyond the file, pixels [rows, columns, 3]."""

    console: list[str]
    requests: list[str]
    pixels: Pixels


def look(page: Path, folder: Path, width: int, height: int, *, dark: bool = False) -> Sight:
    """Open a page in a window and look at it."""
    path = browser()
    assert path is not None
    net, shot = folder / "net.json", folder / "shot.png"
    flags = [*FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}"]
    flags += [f"--log-net-log={net}", f"--screenshot={shot}"]
    flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run(
        [path, *flags, page.as_uri()], capture_output=True, text=True, timeout=60, check=True
    )
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Sight(console, requests(net), pixels(shot.read_bytes()))


def dom(page: Path, folder: Path) -> str:
    """The page as the browser understood it."""
    path = browser()
    assert path is not None
    flags = [*FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [path, *flags, page.as_uri()], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def requests(log: Path) -> list[str]:
    """What was asked for over the network, but for what the browser asks by itself."""
    events = json.loads(log.read_text("utf-8"))["events"]
    urls = dict.fromkeys((event.get("params") or {}).get("url", "") for event in events)
    return [u for u in urls if u and not (urlsplit(u).hostname or "").endswith(OWN)]


def pixels(png: bytes) -> Pixels:
    """The colours of a picture of 8 bits a channel, not interlaced."""
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", png[16:29])
    assert (depth, interlaced) == (8, 0)
    channels = {2: 3, 6: 4}[kind]
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += 12 + length
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * channels)
    above = np.zeros((width, channels), np.uint8)
    rows = []
    for line in lines:
        above = _unfiltered(int(line[0]), line[1:].reshape(width, channels), above)
        rows.append(above)
    return np.stack(rows)[:, :, :3]


def _unfiltered(kind: int, line: Pixels, above: Pixels) -> Pixels:
    """A row of a PNG with its filter undone."""
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, axis=0, dtype=np.uint8)
    if kind == 2:
        return line + above
    left = corner = [0] * line.shape[1]
    found = []
    for given, up in zip(line.tolist(), above.tolist(), strict=True):
        guess = _average if kind == 3 else _paeth
        left = [
            (v + guess(a, b, c)) & 255 for v, a, b, c in zip(given, left, up, corner, strict=True)
        ]
        corner = up
        found.append(left)
    return np.array(found, np.uint8)


def _average(left: int, up: int, corner: int) -> int:
    return (left + up) // 2


def _paeth(left: int, up: int, corner: int) -> int:
    a, b, c = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    return left if a <= b and a <= c else up if b <= c else corner
