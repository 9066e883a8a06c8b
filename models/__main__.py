"""Rebuild the committed files: `python -m models [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

from models.catalog import CATALOG, serialise


def main(folder: Path) -> None:
    """Write every model of the catalogue into `folder` and print its size in bytes."""
    for name, build in CATALOG.items():
        size = (folder / f"{name}.onnx").write_bytes(serialise(build()))
        print(f"{name}.onnx\t{size}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
