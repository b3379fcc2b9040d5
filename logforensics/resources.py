"""Where the data folders are: ``parsers/`` (signatures) and ``reports/`` (templates).

They stand beside the package in a checkout and in an editable install, and inside it in a wheel.
``importlib.resources`` alone finds them only in the wheel, so the packaged folder is tried first and
the folder beside the package second.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def data_folder(name: str) -> Traversable:
    """Return the folder ``name`` ("parsers" or "reports") of this installation.

    Raises FileNotFoundError when neither place has it, which means a broken installation.
    """
    packaged = files("logforensics") / name
    if packaged.is_dir():
        return packaged
    beside = Path(__file__).resolve().parents[1] / name
    if beside.is_dir():
        return beside
    raise FileNotFoundError(f"the data folder {name!r} is missing from this installation; reinstall logforensics")


def data_text(folder: str, name: str) -> str:
    """Return the text of one file of a data folder, for example ``data_text("reports", "report.css")``."""
    return (data_folder(folder) / name).read_text(encoding="utf-8")
