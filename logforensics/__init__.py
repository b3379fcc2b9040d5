"""logforensics: which rank of a distributed training run failed first, and why.

The one call most programs need::

    from logforensics import analyze

    analysis = analyze(["run/logs"])
    print(analysis.verdict.headline)

Imports are lazy, so that ``logforensics --help`` and shell completion stay fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Analysis", "__version__", "analyze"]

if TYPE_CHECKING:
    from logforensics.analysis import Analysis, analyze


def __getattr__(name: str) -> Any:
    if name in {"Analysis", "analyze"}:
        from logforensics import analysis

        return getattr(analysis, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
