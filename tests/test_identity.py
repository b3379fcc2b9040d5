"""Who is who: global, local and group ranks are kept apart, and joined only where a witness names both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import Files, identified, told

from logforensics.layout import Hints, hints_of
from logforensics.model import Event

FAULT = "RuntimeError: CUDA error: device-side assert triggered"


def members(folder: Path, files: Files | str) -> list[tuple[int | None, int | None]]:
    """Return global and local rank of every event, file by file."""
    files = {"run.log": files} if isinstance(files, str) else files
    events = sorted(told(identified(folder, files)[1]), key=lambda event: (event.source, event.offset))
    return [(event.rank, event.local_rank) for event in events]


def ranks(folder: Path, files: Files | str) -> list[int | None]:
    return [rank for rank, _ in members(folder, files)]


def event_of(folder: Path, files: Files | str, signature: str) -> Event:
    files = {"run.log": files} if isinstance(files, str) else files
    (event,) = [event for event in identified(folder, files)[1] if event.signature == signature]
    return event


# --- marks on the line ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "rank"), [
    (f"[rank5]: {FAULT}", 5),  # torch's excepthook: global
    (f"[rank12345]: {FAULT}", 12345),
    (f"[rank 5] {FAULT}", 5),  # a home-made logger's
    (f"5: {FAULT}", 5),  # srun --label
    (f" 5: {FAULT}", 5),
    (f"[1,5]<stderr>:{FAULT}", 5),  # mpirun --tag-output
    (f"[1,5][node2:4711]<stderr>: {FAULT}", 5),
    (f"node1: {FAULT}", None),  # pdsh says where, not who
    (FAULT, None),
])  # fmt: skip
def test_a_mark_that_counts_over_the_whole_run_is_the_rank(tmp_path: Path, line: str, rank: int | None):
    assert ranks(tmp_path, line + "\n") == [rank]


def test_torchruns_default_mark_is_local(tmp_path: Path):
    assert members(tmp_path, {"node1/launcher.err": f"[default3]:{FAULT}\n"}) == [(None, 3)]


def test_with_one_node_local_and_global_ranks_are_the_same(tmp_path: Path):
    assert members(tmp_path, f"[default3]:{FAULT}\n") == [(3, 3)]


@pytest.mark.parametrize("other", [
    {"node1.log": f"[default0]:{FAULT}\n"},  # a second node's log
    {"run.log": f"[default3]:{FAULT}\n[rank11]: {FAULT}\n"},  # more ranks than a node has
    {"run.log": f"[default3]:{FAULT}\n2026-11-30 19:11:05,469 init done: rank=0 world=16 backend=nccl torch=2.13.0 pid=9\n"},
    {"run.log": f"[default3]:{FAULT}\n[default1]:[rank5]: {FAULT}\n[default2]:[rank4]: {FAULT}\n"},  # proof of the contrary
])  # fmt: skip
def test_one_node_is_not_assumed_where_anything_speaks_against_it(tmp_path: Path, other: Files):
    files = {"run.log": f"[default3]:{FAULT}\n", **other}

    assert members(tmp_path, files)[-1 if "node1.log" in other else 0] == (None, 3)


def test_a_line_with_both_marks_teaches_the_others_of_its_launcher(tmp_path: Path):
    log = f"[default0]:[rank4]: {FAULT}\n[default3]:[rank7]: {FAULT}\n[default3]:{FAULT}\n[default2]:{FAULT}\n"
    found = members(tmp_path, {"node1/launcher.err": log, "node0/launcher.err": f"[default3]:{FAULT}\n"})

    assert found == [(None, 3), (4, 0), (7, 3), (7, 3), (6, 2)]


def test_one_witness_is_not_enough_for_its_neighbours(tmp_path: Path):
    """Nodes need not have all ranks in a row: only two that agree tell how the launcher counts."""
    log = f"[default3]:[rank7]: {FAULT}\n[default2]:{FAULT}\n"

    assert members(tmp_path, {"node1/launcher.err": log}) == [(7, 3), (None, 2)]


def test_witnesses_that_disagree_are_a_conflict_and_teach_nothing(tmp_path: Path):
    log = f"[default3]:[rank7]: {FAULT}\n[default3]:[rank11]: {FAULT}\n"
    identity, _ = identified(tmp_path, {"launcher.err": log})

    assert len(identity.conflicts) == 1
    assert "local rank 3 is rank 7 and rank 11" in identity.conflicts[0]


# --- schedulers' tasks ----------------------------------------------------------------------------------------


def test_a_task_is_a_rank_where_each_task_is_one_process(tmp_path: Path):
    assert ranks(tmp_path, f"0: [rank0]: {FAULT}\n3: [rank3]: {FAULT}\n2: {FAULT}\n") == [0, 3, 2]


def test_a_task_is_a_node_where_the_ranks_say_so(tmp_path: Path):
    assert ranks(tmp_path, f"0: [rank0]: {FAULT}\n1: [rank4]: {FAULT}\n1: {FAULT}\n") == [0, 4, None]


def test_a_task_is_a_node_where_it_runs_a_launcher(tmp_path: Path):
    log = (
        f"1: {FAULT}\n"
        "1: E1130 19:11:08.954000 8544 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) "
        "local_rank: 0 (pid: 4711) of binary: /usr/bin/python\n"
    )

    assert ranks(tmp_path, log)[0] is None


# --- paths ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "hints"), [
    ("ranks/none_abc/attempt_0/3/stderr.log", Hints(None, 3, None, 0, "stderr", "ranks/none_abc/")),
    ("node1/ranks/none_abc/attempt_2/3/stdout.log", Hints(None, 3, "node1", 2, "stdout", "node1/ranks/none_abc/")),
    ("attempt_0/3/error.json", Hints(None, 3, None, 0, "error_file", "")),
    ("logs.tar!node_2/x/attempt_1/0/stderr.log", Hints(None, 0, "node2", 1, "stderr", "logs.tar/node_2/x/")),
    ("20260101_rank5.log", Hints(5, group="")),
    ("logs/rank_05.log", Hints(5, group="logs")),
    ("logs/rank-5.out", Hints(5, stream="stdout", group="logs")),
    ("out/1/rank.03/stderr", Hints(3, stream="stderr", group="out/1/rank.03")),
    ("node-3/launcher.err", Hints(node="node3", stream="launcher", group="node-3")),
    ("dmesg-node3.log", Hints(node="node3", stream="kernel")),
    ("kern.log", Hints(stream="kernel")),
    ("crankshaft7.log", Hints()),
    ("ranking7/train.log", Hints(group="ranking7")),
])  # fmt: skip
def test_a_path_tells_what_its_launcher_guarantees(name: str, hints: Hints):
    assert hints_of(name) == hints


def tree(node: int, local: int, text: str, attempt: int = 0) -> Files:
    return {f"node{node}/ranks/none_{node}xyz/attempt_{attempt}/{local}/stderr.log": text}


def test_torchruns_folders_are_local_ranks(tmp_path: Path):
    files = tree(0, 3, f"{FAULT}\n") | tree(1, 3, f"{FAULT}\n")

    assert members(tmp_path, files) == [(None, 3), (None, 3)]


def test_a_marked_line_names_the_whole_file_of_each_node(tmp_path: Path):
    files = tree(0, 3, f"[rank3]: {FAULT}\n{FAULT}\n") | tree(1, 3, f"[rank7]: {FAULT}\n{FAULT}\n")

    assert members(tmp_path, files) == [(3, 3), (3, 3), (7, 3), (7, 3)]


def test_two_named_files_of_a_node_name_the_third(tmp_path: Path):
    files = (
        tree(1, 0, f"[rank4]: {FAULT}\n")
        | tree(1, 3, f"[rank7]: {FAULT}\n")
        | tree(1, 2, f"{FAULT}\n")
        | tree(0, 2, f"{FAULT}\n")
    )

    assert members(tmp_path, files) == [(None, 2), (4, 0), (6, 2), (7, 3)]


def test_a_launchers_summary_beside_the_tree_names_its_files(tmp_path: Path):
    summary = failure_entry(7, 3, 4711, "node-1") + failure_entry(4, 0, 4708, "node-1")
    files = {"node1/launcher.err": summary} | tree(1, 3, f"{FAULT}\n") | tree(1, 1, f"{FAULT}\n")

    assert ranks(tmp_path, files) == [7, 4, 5, 7]


def test_attempts_are_read_from_the_tree(tmp_path: Path):
    files = tree(0, 0, f"[rank0]: {FAULT}\n") | tree(0, 0, f"[rank0]: {FAULT}\n", attempt=1)
    _, events = identified(tmp_path, files)

    assert [event.attempt for event in told(events)] == [0, 1]


def test_the_path_does_not_overrule_the_mark(tmp_path: Path):
    assert ranks(tmp_path, {"rank3.log": f"{FAULT}\n[rank5]: {FAULT}\n"}) == [3, 5]


def test_an_error_file_belongs_to_its_folders_rank(tmp_path: Path):
    message = {"message": f"{FAULT}", "extraInfo": {"py_callstack": "", "timestamp": "1796065865"}}
    folder = "node1/ranks/none_abc/attempt_0/3"
    files = {f"{folder}/error.json": json.dumps({"message": message}), f"{folder}/stderr.log": f"[rank7]: {FAULT}\n"}

    assert members(tmp_path, files) == [(7, 3), (7, 3)]


# --- pids -----------------------------------------------------------------------------------------------------


def failure_entry(rank: int, local: int, pid: int, host: str) -> str:
    return (
        "  time      : 2026-11-30_19:59:43\n"
        f"  host      : {host}\n"
        f"  rank      : {rank} (local_rank: {local})\n"
        f"  exitcode  : -9 (pid: {pid})\n"
        "  error_file: <N/A>\n"
        f"  traceback : Signal 9 (SIGKILL) received by PID {pid}\n"
    )


def test_the_launchers_summary_joins_rank_local_rank_pid_and_host(tmp_path: Path):
    event = event_of(tmp_path, failure_entry(7, 3, 4711, "node-1"), "torchelastic/failure-entry")

    assert (event.rank, event.local_rank, event.pid, event.node) == (7, 3, 4711, "node-1")


OOM = (
    "[12345.678901] Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB, "
    "file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n"
)


def test_a_pid_in_a_kernel_line_is_the_rank_that_the_summary_gives_it(tmp_path: Path):
    files = {"node1/launcher.err": failure_entry(7, 3, 4711, "node-1"), "node1/dmesg.log": OOM}
    event = event_of(tmp_path, files, "kernel/oom-killed-cgroup")

    assert (event.rank, event.pid) == (7, 4711)


def test_a_pid_that_nobody_named_is_no_rank(tmp_path: Path):
    files = {"launcher.err": failure_entry(7, 3, 4712, "node-1"), "dmesg.log": OOM}

    assert event_of(tmp_path, files, "kernel/oom-killed-cgroup").rank is None


def test_a_pid_that_two_nodes_use_is_no_rank(tmp_path: Path):
    files = {
        "node0/launcher.err": failure_entry(3, 3, 4711, "node-0"),
        "node1/launcher.err": failure_entry(7, 3, 4711, "node-1"),
        "dmesg.log": OOM,
    }

    assert event_of(tmp_path, files, "kernel/oom-killed-cgroup").rank is None


def test_an_announcement_joins_pid_and_rank(tmp_path: Path):
    log = f"2026-11-30 19:11:05,469 init done: rank=6 world=8 backend=nccl torch=2.13.0 pid=4711\n{OOM}"

    assert ranks(tmp_path, log) == [6, 6]


def test_a_workers_pid_and_torchs_mark_name_its_other_lines(tmp_path: Path):
    worker = "(RayTrainWorker pid=4711, ip=10.0.0.7) "

    assert ranks(tmp_path, f"{worker}[rank2]: {FAULT}\n{worker}{FAULT}\n") == [2, 2]


def nccl(host: str, pid: int, device: int, text: str) -> str:
    return f"{host}:{pid}:{pid + 40} [{device}] NCCL {text}\n"


def joined(host: str, pid: int, device: int, rank: int, size: int, group: str = "0x5b6d") -> str:
    text = f"INFO ncclCommInitRank comm 0x55d0 rank {rank} nranks {size} cudaDev {device} nvmlDev {device} busId {device + 1}6000 "
    return nccl(host, pid, device, text + f"commId {group} - Init COMPLETE")


CLOSED = "WARN socketProgress: Connection closed by remote peer node-1.cluster<51424>"


def test_the_communicator_of_all_ranks_tells_which_pid_is_which_rank(tmp_path: Path):
    log = (
        joined("node-1", 2001, 0, 0, 4)
        + joined("node-2", 2001, 0, 2, 4)  # the same pid on another node
        + joined("node-2", 2002, 1, 3, 4)
        + nccl("node-2", 2002, 1, CLOSED)
        + nccl("node-2", 2001, 0, CLOSED)
        + nccl("node-9", 7, 0, CLOSED)
    )
    identity, events = identified(tmp_path, {"run.log": log})
    lost = [(event.rank, event.node) for event in events if event.signature == "nccl_debug/peer-closed"]

    assert identity.world_size == 4
    assert lost == [(3, "node-2"), (2, "node-2"), (None, "node-9")]


def test_a_rank_in_a_smaller_communicator_is_not_the_runs(tmp_path: Path):
    log = (
        joined("node-1", 2001, 0, 0, 4)
        + joined("node-2", 2002, 1, 3, 4)
        + joined("node-2", 2002, 1, 1, 2, "0x77")
        + joined("node-2", 2009, 0, 0, 2, "0x77")
    )

    assert ranks(tmp_path, log) == [0, 3, 3, None]


def test_where_several_groups_have_the_largest_size_none_counts_the_ranks(tmp_path: Path):
    """Only the tensor-parallel groups' lines are there: rank 1 of each is another rank of the run."""
    log = "".join(
        joined("node-1", 2000 + 2 * group + rank, 2 * group + rank, rank, 2, f"0x7{group}")
        for group in range(2)
        for rank in range(2)
    )

    assert ranks(tmp_path, log) == [None] * 4


@pytest.mark.parametrize(("host", "rank"), [("node-1", 1), ("node-2", None)])
def test_a_kernels_gpu_is_the_rank_that_nccl_saw_in_that_slot_of_that_node(tmp_path: Path, host: str, rank: int | None):
    files = {
        "run.log": joined("node-1", 2001, 0, 0, 4) + joined("node-1", 2002, 1, 1, 4),
        "kern.log": f"Nov 30 07:00:00 {host} kernel: NVRM: Xid (PCI:0000:26:00): 79, GPU has fallen off the bus.\n",
    }
    (event,) = [event for event in identified(tmp_path, files)[1] if event.stream == "kernel"]

    assert (event.rank, event.node) == (rank, host)


# --- ranks inside a group -------------------------------------------------------------------------------------


def watchdog(group: str) -> str:
    return (
        f"[E1130 07:00:00.123456789 ProcessGroupNCCL.cpp:632] [{group}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds "
        "before timing out.\n"
    )


@pytest.mark.parametrize("group", ["PG ID 0 PG GUID 0(default_pg) Rank 3", "Rank 3"])
def test_the_rank_in_the_group_of_all_is_the_rank(tmp_path: Path, group: str):
    assert ranks(tmp_path, watchdog(group)) == [3]


def test_the_rank_in_another_group_is_not(tmp_path: Path):
    assert ranks(tmp_path, watchdog("PG ID 2 PG GUID 5(tp_group) Rank 3")) == [None]


def test_the_mark_and_the_file_win_over_the_group(tmp_path: Path):
    """The rank inside a watchdog's message counts in its group, and can be stale."""
    assert ranks(tmp_path, "[rank5]:" + watchdog("PG ID 2 PG GUID 5(tp_group) Rank 3")) == [5]
    assert ranks(tmp_path / "file", {"rank6.log": watchdog("PG ID 2 PG GUID 5(tp_group) Rank 3")}) == [6]
    assert ranks(tmp_path / "tree", tree(1, 2, watchdog("PG ID 0 PG GUID 0(default_pg) Rank 3"))) == [None]


# --- the run --------------------------------------------------------------------------------------------------


def test_the_world_is_as_large_as_the_largest_that_is_announced(tmp_path: Path):
    log = joined("node-1", 2001, 0, 0, 16) + joined("node-1", 2001, 0, 0, 2, "0x77")

    assert identified(tmp_path, {"run.log": log})[0].world_size == 16
    assert identified(tmp_path / "none", {"run.log": FAULT + "\n"})[0].world_size is None


def test_a_host_on_the_line_is_its_rank_s_node_everywhere(tmp_path: Path):
    log = f"node7: [rank3]: {FAULT}\n[rank3]: {FAULT}\n[rank4]: {FAULT}\n"
    _, events = identified(tmp_path, {"run.log": log})

    assert [(event.rank, event.node) for event in told(events)] == [(3, "node7"), (3, "node7"), (4, None)]
