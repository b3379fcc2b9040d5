"""Real failures made here and now, one a strategy, and diagnosed. Each run takes seconds and is ended after 75 s."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from logforensics.checking.fixtures import Fixture, check_fixture
from logforensics.checking.report import rows_of
from logforensics.harness import matrix
from logforensics.harness.faults import FAULTS
from logforensics.harness.plan import Plan
from logforensics.harness.verify import load_truth

ABSENT = [name for name in ("torch", "deepspeed") if importlib.util.find_spec(name) is None]
PLANS = [
    Plan(strategy="ddp", fault="sigkill"),
    Plan(strategy="fsdp1-full_shard", fault="dl_exception", layout="tee"),
    Plan(strategy="fsdp1-shard_grad_op", fault="nan", layout="combined"),
    Plan(strategy="fsdp1-no_shard", fault="none", layout="per_rank"),
    Plan(strategy="fsdp2", fault="stuck_sleep"),
    Plan(strategy="zero1", fault="segfault", dialect="print"),
    Plan(strategy="zero2", fault="shape", launcher="deepspeed", layout="combined"),
    Plan(strategy="zero3", fault="key_error", dialect="tqdm"),
    Plan(strategy="zero3_offload", fault="dl_kill"),
]


def processes_with(variable: str, value: str) -> list[str]:
    """The commands of the processes that have inherited a variable of the environment, this one aside."""
    wanted, found = f"{variable}={value}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # gone, or another user's
    return found


@pytest.mark.harness
@pytest.mark.skipif(bool(ABSENT), reason=f"{' and '.join(ABSENT)} not installed: pip install 'logforensics[harness]'")
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_a_fresh_failure_is_made_and_diagnosed(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOGFORENSICS_TEST", str(tmp_path))

    row = matrix.make_one(plan, tmp_path)

    assert (row.state, row.detail) == ("made", "")
    assert load_truth(tmp_path / plan.name) == FAULTS[plan.fault].truth(plan)
    assert processes_with("LOGFORENSICS_TEST", str(tmp_path)) == []
    assert rows_of(check_fixture(Fixture(plan.name, tmp_path / plan.name))) == []
