"""The reproduction harness: plans, truths, matrices and captures. Real runs: test_harness_fresh.py."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pickle
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from logforensics.harness import launch, matrix, run
from logforensics.harness.capture import Neutraliser, reproduce_command, toml_value, truth_toml
from logforensics.harness.cli_reproduce import register
from logforensics.harness.data import PER_SHARD, shard_path, spoil_shards, struck_index, write_shards
from logforensics.harness.faults import FAULTS, refuse
from logforensics.harness.plan import LAUNCHERS, LAYOUTS, STRATEGIES, Plan
from logforensics.harness.verify import load_plan, load_truth, problems
from logforensics.model import CATEGORIES, PHASES, STATUSES

ROOT = Path(__file__).parents[1]
FIXTURES = sorted(path.parent for path in (ROOT / "fixtures").glob("*/truth.toml"))
HARNESS_FOLDERS = [path for path in FIXTURES if "plan = {" in (path / "provenance.toml").read_text()]


def all_plans() -> list[Plan]:
    return [plan for name in matrix.MATRICES for plan in matrix.read_matrix(name)]


# --- plans and truths -----------------------------------------------------------------------------------------


def test_importing_the_harness_does_not_import_torch():
    code = (
        "import sys, logforensics.harness.matrix, logforensics.harness.cli_reproduce, logforensics.harness.train;"
        "assert not {'torch', 'deepspeed', 'accelerate', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_analysis_never_imports_the_harness():
    for path in (ROOT / "logforensics").glob("*.py"):
        if path.name != "cli.py":
            assert "logforensics.harness" not in path.read_text(), path


@pytest.mark.parametrize("plan", all_plans(), ids=lambda plan: f"{plan.device}-{plan.name}")
def test_every_run_of_every_matrix_makes_sense_and_has_a_truth_in_the_vocabulary(plan: Plan):
    truth = FAULTS[plan.fault].truth(plan)

    assert refuse(plan) is None
    assert truth.category in CATEGORIES
    assert truth.status in STATUSES
    assert truth.phase in PHASES
    assert set(truth.also_acceptable) <= set(CATEGORIES)
    assert truth.category not in truth.also_acceptable
    assert set(truth.ranks) <= set(range(plan.world))
    assert (truth.status == "no_failure") == (truth.category == "no_failure")
    assert tomllib.loads(truth_toml(truth))["evidence"] == truth.evidence


def test_a_plan_survives_json():
    plan = Plan(strategy="zero3", fault="shape", launcher="deepspeed", layout="combined", nproc=4, rank=2)

    assert Plan.from_mapping(json.loads(plan.to_json())) == plan


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"stategy": "ddp"}, "unknown key 'stategy'"),
        ({"strategy": "fsdp9"}, "should be one of ddp"),
        ({"rank": 2}, "the run has ranks 0 to 1"),
        ({"nproc": "4"}, "should be of type int"),
        ({"nproc": 0}, "at least 1"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_words(values: dict[str, object], words: str):
    with pytest.raises(ValueError, match=words):
        Plan.from_mapping(values)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(launcher="deepspeed", layout="tee"), "does not write layout tee"),
        (Plan(backend="nccl"), "NCCL needs a GPU"),
        (Plan(debug="DETAIL"), "segfaults"),
        (Plan(fault="cuda_oom"), "needs --device cuda"),
        (Plan(fault="missing_node"), "needs --nnodes 2"),
        (Plan(fault="batch_config"), "DeepSpeed"),
        (Plan(fault="nonsense"), "unknown fault"),
        (Plan(layout="kubectl"), "at least two nodes"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(plan: Plan, words: str):
    assert words in str(refuse(plan))


def test_the_silent_culprit_is_undetermined_and_the_launcher_can_lift_it():
    killed = FAULTS["sigkill"].truth

    assert killed(Plan(nproc=4, rank=2)).evidence == "failed (exitcode: -9) local_rank: 2"
    assert killed(Plan(nnodes=2, nproc=2, rank=3)).evidence == "failed (exitcode: -9) local_rank: 1"
    assert killed(Plan(launcher="deepspeed")).evidence == "exits with return code = -9"
    assert killed(Plan(launcher="spawn")).evidence == "process 1 terminated with signal SIGKILL"
    assert killed(Plan(launcher="processes")).status == "undetermined"
    assert FAULTS["sys_exit"].truth(Plan()).category == "unknown_exit"
    assert FAULTS["stuck_sleep"].truth(Plan()).ranks == (1,)


def test_a_message_is_evidence_only_where_the_rank_speaks():
    slow = FAULTS["slow_eval"].truth

    assert slow(Plan(dialect="print")).status == "diagnosed"
    assert slow(Plan(dialect="trainer", rank=0)).evidence == "starting evaluation"
    assert slow(Plan(dialect="trainer", rank=1)).status == "undetermined"
    assert "slow_rank" in slow(Plan(dialect="trainer", rank=1)).also_acceptable


# --- matrices -------------------------------------------------------------------------------------------------


def test_the_cpu_matrix_covers_every_strategy_launcher_layout_and_each_cpu_fault_twice():
    plans = matrix.read_matrix("cpu")
    faults = Counter(plan.fault for plan in plans)

    assert {plan.strategy for plan in plans} == set(STRATEGIES)
    assert {plan.launcher for plan in plans} == set(LAUNCHERS)
    assert {plan.layout for plan in plans} == set(LAYOUTS)
    assert [name for name, fault in FAULTS.items() if fault.device != "cuda" and faults[name] < 2] == []
    assert sum(FAULTS[plan.fault].truth(plan).status == "no_failure" for plan in plans) >= 8
    assert sum(FAULTS[plan.fault].truth(plan).status == "undetermined" for plan in plans) >= 6


def test_the_gpu_matrices_hold_the_gpu_faults():
    one = {plan.fault for plan in matrix.read_matrix("one-gpu")}

    assert {name for name, fault in FAULTS.items() if fault.device == "cuda"} <= one
    assert all(plan.nproc == 1 or plan.share_gpu for plan in matrix.read_matrix("one-gpu"))
    assert sum(plan.bound for plan in matrix.read_matrix("one-gpu")) <= 1200


def test_every_strategy_with_every_fault_is_possible_or_refused_with_a_reason():
    pairs = list(matrix.pairs())

    assert len(pairs) == len(STRATEGIES) * len(FAULTS)
    assert all(reason is None or len(reason) > 10 for _, _, reason in pairs)


@pytest.mark.parametrize("text", ["run = 3", "run = [{ fault = 1 }]", "what = 1\nrun = [{}]", "run = [", "run=[{},{}]"])
def test_a_broken_matrix_is_named(tmp_path: Path, text: str):
    path = tmp_path / "mine.toml"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"mine\.toml"):
        matrix.read_matrix(str(path))


def test_a_gpu_run_is_skipped_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(matrix.importlib.util, "find_spec", lambda name: True)

    assert "GPU" in str(matrix.unavailable(Plan(device="cuda", backend="nccl"), gpus=1))
    assert matrix.unavailable(Plan(device="cuda", share_gpu=True), gpus=1) is None


def test_many_runs_are_told_one_by_one_and_a_broken_one_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(plan: Plan, out: Path) -> run.Outcome:
        raise RuntimeError("no")

    monkeypatch.setattr(matrix, "run_plan", fail)
    monkeypatch.setattr(matrix, "unavailable", lambda plan: None)
    told: list[str] = []
    rows = matrix.make_many([Plan(), Plan(fault="nonsense")], tmp_path, 2, lambda row: told.append(row.state))

    assert sorted(told) == ["broken", "skipped"]
    assert len(rows) == 2


# --- launching and capturing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", all_plans(), ids=lambda plan: f"{plan.device}-{plan.name}")
def test_no_command_or_variable_says_what_was_injected(plan: Plan, tmp_path: Path):
    prepared = launch.prepare(plan, tmp_path / "work", 12345)
    words = [word for task in prepared.tasks for word in (*task.argv, *task.environment.values())]
    words += launch.base_environment(plan, tmp_path / "work").values()

    assert all(plan.fault not in word for word in words if plan.fault != "none")
    assert len(prepared.tasks) >= 1


def test_launch_faults_are_wrong_values_in_right_commands(tmp_path: Path):
    two = Plan(nnodes=2, nproc=1)

    def words(**changes: object) -> list[tuple[str, ...]]:
        return [task.argv for task in launch.prepare(replace(two, **changes), tmp_path, 7).tasks]  # type: ignore[arg-type]

    assert len(words(fault="missing_node", rdzv="c10d")) == 1
    assert all("--node-rank=0" in argv for argv in words(fault="duplicate_machine_rank"))
    assert f"--rdzv-endpoint={launch.NOWHERE}:7" in words(fault="wrong_address", rdzv="c10d")[0]
    text = launch.accelerate_config(replace(two, fault="duplicate_machine_rank"), 1, 7)
    assert "machine_rank: 0" in text
    assert "num_machines: 2" in text


def test_names_and_paths_are_replaced_and_nothing_else():
    neutral = Neutraliser({"/root": "/home/user", "/root/venv": "/opt/venv", "/tmp/lf-x": "/run"}, {"vm7": "node0"})
    text = "/root/venv/bin/python /root/x.py at vm7: Root Cause /rooted vm70 my-vm7 /tmp/lf-xy /tmp/lf-x/logs"

    assert neutral.text(text) == (
        "/opt/venv/bin/python /home/user/x.py at node0: Root Cause /rooted vm70 my-vm7 /tmp/lf-xy /run/logs"
    )
    assert neutral.clean(b"\xff\x00/root\n") == b"\xff\x00/home/user\n"


def test_a_flight_recorder_dump_stays_readable():
    dump = pickle.dumps({"entries": [{"frames": [{"filename": "/root/venv/a.py"}], "n": 3}]}, protocol=2)
    neutral = Neutraliser({"/root/venv": "/opt/venv"}, {})

    assert pickle.loads(neutral.pickled(dump)) == {"entries": [{"frames": [{"filename": "/opt/venv/a.py"}], "n": 3}]}
    with pytest.raises(pickle.UnpicklingError):
        neutral.pickled(pickle.dumps(os.getcwd))


@pytest.mark.parametrize(
    ("layout", "stream", "expected"),
    [
        ("srun", "stdout", b"1: step 3\n"),
        ("mpirun", "stderr", b"[1,1]<stderr>:step 3\n"),
        ("ray", "stdout", b"\x1b[36m(RayTrainWorker pid=77)\x1b[0m step 3\n"),
    ],
)
def test_lines_are_wrapped_as_the_carrier_writes_them(tmp_path: Path, layout: str, stream: str, expected: bytes):
    task = launch.prepare(Plan(launcher="processes", layout=layout), tmp_path, 7).tasks[1]
    pump = run._Pump(tmp_path / "out.log")
    pump.follow(io.BytesIO(b"step 3"), task.label.replace("{stream}", stream).replace("{pid}", "77"))
    pump.close()

    assert (tmp_path / "out.log").read_bytes() == expected


def test_kubectl_and_srun_label_nodes_under_torchrun(tmp_path: Path):
    pods = launch.prepare(Plan(layout="kubectl", nnodes=2, nproc=1), tmp_path, 7).tasks
    nodes = launch.prepare(Plan(layout="srun", nnodes=2, nproc=1), tmp_path, 7).tasks

    assert [task.label for task in pods] == ["[pod/train-worker-0/pytorch] ", "[pod/train-worker-1/pytorch] "]
    assert [task.label for task in nodes] == ["0: ", "1: "]


def test_the_spoiled_shard_is_the_one_that_the_guilty_rank_reads(tmp_path: Path):
    for fault in ("missing_file", "truncated_file", "corrupt_file"):
        plan = Plan(fault=fault, rank=1, at_step=2)
        write_shards(plan, tmp_path / "good")
        write_shards(plan, tmp_path / fault)
        spoil_shards(plan, tmp_path / fault)
        number = struck_index(plan) // PER_SHARD
        differing = [
            path.name
            for path in sorted((tmp_path / "good").iterdir())
            if not (tmp_path / fault / path.name).exists()
            or (tmp_path / fault / path.name).read_bytes() != path.read_bytes()
        ]

        assert differing == [shard_path(tmp_path, number).name]


def test_only_processes_with_the_mark_are_found_and_ended():
    mark = f"lf-test-{os.getpid()}"
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    mine = subprocess.Popen(sleeper, env={**os.environ, "LOGFORENSICS_RUN": mark}, start_new_session=True)
    other = subprocess.Popen(sleeper, env={**os.environ, "LOGFORENSICS_RUN": mark + "0"})
    try:
        deadline = time.monotonic() + 10
        while run.own_processes(mark) != [mine.pid] and time.monotonic() < deadline:
            time.sleep(0.05)

        assert run.own_processes(mark) == [mine.pid]
        assert run.end_processes(mark, patience=5) == 1
        assert mine.wait(5) < 0
        assert other.poll() is None
    finally:
        mine.kill()
        other.kill()
        mine.wait()
        other.wait()


def test_a_fixture_that_does_not_show_its_truth_is_called_wrong(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train.log").write_text("step 1\ntraining finished\n")
    plan = Plan(fault="shape", layout="combined")
    (tmp_path / "truth.toml").write_text(truth_toml(FAULTS["shape"].truth(plan)))
    entries = {"plan": json.loads(plan.to_json()), "exit_codes": [0], "ended_by_harness": True}
    (tmp_path / "provenance.toml").write_text("".join(f"{k} = {toml_value(v)}\n" for k, v in entries.items()))

    found = " | ".join(problems(tmp_path, run.Outcome((0,), True, 1.0, False)))

    for words in ("never reached", "is in no log", "ended with 0", "did not end by itself"):
        assert words in found


# --- the command ----------------------------------------------------------------------------------------------


def invoke(*words: str) -> object:
    app = typer.Typer()
    register(app)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["reproduce", *words])


def test_the_command_lists_faults_with_what_they_inject():
    result = invoke("--list")

    assert result.exit_code == 0  # type: ignore[attr-defined]
    assert all(name in result.output for name in FAULTS)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fault", "none"], "--out"),
        (["--fault", "nonsense", "--out", "x"], "unknown fault"),
        (["--launcher", "deepspeed", "--layout", "tee", "--out", "x"], "does not write"),
        (["--set", "colour=red", "--out", "x"], "unknown key"),
        (["--set", "timeout=soon", "--out", "x"], "type float"),
        (["--matrix", "nowhere.toml", "--out", "x"], "nowhere.toml"),
        (["--strategy", "ddq", "--out", "x"], "should be one of"),
    ],
)
def test_unusable_arguments_are_one_line_and_exit_2(words: list[str], said: str):
    result = invoke(*words)

    assert result.exit_code == 2  # type: ignore[attr-defined]
    assert said in result.output  # type: ignore[attr-defined]
    assert result.output.count("\n") == 1  # type: ignore[attr-defined]


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = invoke("--out", str(tmp_path))

    assert result.exit_code == 2  # type: ignore[attr-defined]
    assert "logforensics[harness]" in result.output  # type: ignore[attr-defined]


def test_the_recorded_command_makes_the_same_plan():
    plan = Plan(strategy="fsdp2", fault="mismatch_op", debug="DETAIL", flight_recorder=True, timeout=9.0, layout="tee")

    assert reproduce_command(plan) == (
        "logforensics reproduce --strategy fsdp2 --fault mismatch_op --layout tee "
        "--set debug=DETAIL --set flight_recorder=True --set timeout=9.0 --out DIR"
    )


# --- the fixtures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", HARNESS_FOLDERS, ids=lambda path: path.name)
def test_every_shipped_fixture_shows_its_truth(fixture: Path):
    assert load_plan(fixture).name == fixture.name
    assert problems(fixture) == []


def test_the_shipped_fixtures_cover_what_they_should():
    plans = [load_plan(path) for path in HARNESS_FOLDERS]
    truths = [load_truth(path) for path in HARNESS_FOLDERS]
    faults = Counter(plan.fault for plan in plans)

    assert len(plans) >= 80
    assert {plan.strategy for plan in plans} == set(STRATEGIES)
    assert {plan.launcher for plan in plans} == set(LAUNCHERS)
    assert {plan.layout for plan in plans} == set(LAYOUTS)
    assert [name for name, fault in FAULTS.items() if fault.device != "cuda" and faults[name] < 2] == []
    assert sum(truth.status == "no_failure" for truth in truths) >= 8
    assert sum(truth.status == "undetermined" for truth in truths) >= 6
    assert {2, 4} <= {plan.world for plan in plans}
    assert sum(f.stat().st_size for p in HARNESS_FOLDERS for f in p.rglob("*") if f.is_file()) < 30 << 20


def test_no_shipped_log_names_the_machine_that_made_it():
    for fixture in HARNESS_FOLDERS:
        for path in fixture.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                assert b"/root/" not in data, path
                assert b"/tmp/lf-" not in data, path
                assert b"/work/main" not in data, path
