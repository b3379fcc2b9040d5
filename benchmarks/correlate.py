"""How long does the correlator take on a run of 1,024 ranks, beyond reading it?

    python benchmarks/correlate.py [--ranks 1024]

Replays a real four-rank run (the per-rank files of fixtures/zero1-shape-2nodes-4ranks): its guilty rank once, a victim
over and over with other ranks and hosts. Prints the seconds that the whole call and the correlator took, and checks
the verdict.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from logforensics import analysis

FIXTURE = Path(__file__).parents[1] / "fixtures" / "zero1-shape-2nodes-4ranks" / "logs"
GUILTY, VICTIM = 3, 0


def replay(folder: Path, ranks: int) -> int:
    """Write one file a rank; returns the rank that is guilty."""
    logs = {
        rank: next(FIXTURE.rglob(f"node{rank // 2}/**/{rank % 2}/stderr.log")).read_text() for rank in (GUILTY, VICTIM)
    }
    guilty = ranks // 2 + 1
    for rank in range(ranks):
        source = GUILTY if rank == guilty else VICTIM
        text = re.sub(rf"\[rank ?{source}\]", f"[rank{rank}]", logs[source])
        (folder / f"rank{rank}.log").write_text(text.replace("localhost", f"host{rank // 8}"))
    return guilty


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ranks", type=int, default=1024)
    ranks = options.parse_args().ranks
    spent = {}
    diagnose = analysis.diagnose

    def timed(*args, **kwargs):
        start = time.perf_counter()
        try:
            return diagnose(*args, **kwargs)
        finally:
            spent["correlate"] = time.perf_counter() - start

    with tempfile.TemporaryDirectory() as name:
        guilty = replay(Path(name), ranks)
        analysis.diagnose = timed
        analysis.analyze(name)  # fills the caches
        start = time.perf_counter()
        verdict = analysis.analyze(name).verdict
        spent["whole"] = time.perf_counter() - start
    if (verdict.category, verdict.ranks) != ("shape_mismatch", [guilty]):
        print(f"wrong verdict: {verdict.category} on {verdict.ranks}, not on {guilty}", file=sys.stderr)
        return 1
    print(f"{ranks} ranks: whole call {spent['whole']:.2f} s, of it the correlator {spent['correlate']:.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
