"""The regressions of a check as annotations of GitHub Actions, at the truth that the answer differs from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logforensics.checking.fixtures import REGRESSIONS, Checked
from logforensics.checking.report import reason_of, rows_of
from logforensics.render.github import annotation, in_workspace


def annotations_of(results: Sequence[Checked]) -> Iterator[str]:
    """Yield one error for each result that makes the check fail."""
    for result in results:
        if result.state in REGRESSIONS:
            truth = result.fixture.folder / "truth.toml"
            told = [
                f"{key}: expected {expected}, said {said}" if expected else said
                for key, expected, said in rows_of(result)
            ]
            yield annotation(
                "error",
                "\n".join(told) or reason_of(result),
                file=in_workspace(truth) or truth.as_posix(),
                line=1,
                title=f"{result.fixture.name}: {result.state}",
            )
