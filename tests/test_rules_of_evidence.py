"""Rules of the correlator that reports of strangers taught, each on the smallest log that shows it."""

from __future__ import annotations

from pathlib import Path

from logforensics import analyze
from logforensics.model import Verdict

WATCHDOG = (
    "[rank{rank}]:[E1130 19:10:02.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600024 "
    "milliseconds before timing out."
)


def verdict_of(folder: Path, *lines: str) -> Verdict:
    (folder / "run.log").write_text("\n".join(lines) + "\n")
    return analyze(folder).verdict


def test_a_job_that_is_cancelled_after_a_task_failed_was_not_interrupted(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        WATCHDOG.format(rank=1),
        "srun: error: node-1: task 1: Exited with exit code 1",
        "slurmstepd: error: *** STEP 6053.0 ON node-1 CANCELLED AT 2026-11-30T19:10:05 ***",
    )

    assert verdict.category != "interrupted"


def test_spawns_own_exception_gives_way_to_the_one_it_brings(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        "Traceback (most recent call last):",
        '  File "/env/lib/python3.8/site-packages/torch/multiprocessing/spawn.py", line 118, in join',
        "    raise Exception(msg)",
        "Exception: ",
        "",
        "-- Process 1 terminated with the following error:",
        "Traceback (most recent call last):",
        '  File "/work/optim.py", line 170, in clip_grad_norm',
        "    raise FloatingPointError(message)",
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.",
    )

    assert (verdict.category, verdict.ranks) == ("nan_loss", [1])
    assert "Minimum loss scale" in verdict.evidence[0].text


def test_a_barrier_that_counts_who_came_names_who_did_not(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        "Traceback (most recent call last):",
        '  File "/work/train.py", line 9, in main',
        "    dist.init_process_group('nccl')",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
        "store_based_barrier_key:1 (world_size=2, worker_count=1, timeout=0:10:00)",
    )

    assert (verdict.status, verdict.category, verdict.ranks) == ("diagnosed", "missing_node", [1])


def test_a_launcher_that_reports_a_failure_is_never_a_healthy_run(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        "2026-11-30 19:00:01,000 INFO step 1 loss 1.5",
        "[2026-11-30 19:00:05,000] [ERROR] [launch.py:325:sigkill_handler] ['/bin/python', '-u', 'train.py', "
        "'--local_rank=1'] exits with return code = -9",
    )

    assert (verdict.status, verdict.category) == ("undetermined", "unknown_exit")


def test_the_rank_that_every_mismatch_names_is_the_odd_one(tmp_path: Path):
    text = (
        "[rank{own}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {own} is running collective: "
        "CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, TensorShape=[1], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
        "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))), but Rank 2 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=3, OpType=BROADCAST, TensorShape=[1], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
        "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt)))."
        "Collectives differ in the following aspects: \t Op type: ALLREDUCEvs BROADCAST"
    )
    verdict = verdict_of(tmp_path, *(text.format(own=rank) for rank in (0, 1, 3)))

    assert (verdict.category, verdict.ranks) == ("collective_mismatch", [2])


def test_a_traceback_that_python_passes_over_is_no_failure(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        "2026-11-30 19:00:01,000 INFO step 1 loss 1.5",
        "Exception ignored in: <function _ConnectionBase.__del__ at 0x7f02c5d1b0a0>",
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.10/multiprocessing/connection.py", line 137, in __del__',
        "    self._close()",
        "OSError: [Errno 9] Bad file descriptor",
        "2026-11-30 19:00:09,000 INFO step 1 saved",
    )

    assert verdict.category == "no_failure"


def test_a_traceback_of_the_logging_module_is_no_failure(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        "--- Logging error ---",
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.10/logging/__init__.py", line 1100, in emit',
        "    msg = self.format(record)",
        "TypeError: not all arguments converted during string formatting",
        "2026-11-30 19:00:01,000 INFO step 1 loss 1.5",
    )

    assert verdict.category == "no_failure"


def test_a_host_and_a_gpu_there_are_one_rank(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        "node-1: [2026-11-30 19:11:05,469] [INFO] [launch.py:164:main] global_rank_mapping=defaultdict(<class 'list'>, "
        "{'node-1': [0, 1, 2, 3], 'node-2': [4, 5, 6, 7]})",
        "node-2: Traceback (most recent call last):",
        'node-2:   File "/work/train.py", line 9, in main',
        "node-2:     loss.backward()",
        "node-2: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.63 GiB (GPU 2; 23.69 GiB total "
        "capacity; 15.98 GiB already allocated; 1.10 GiB free; 16.00 GiB reserved in total by PyTorch)",
    )

    assert (verdict.category, verdict.ranks) == ("cuda_oom", [6])


def test_a_store_that_counts_its_clients_tells_of_the_node_without_a_sign(tmp_path: Path):
    for rank in (8, 13, 24, 31):
        (tmp_path / f"rank_{rank}.log").write_text(
            f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "/work/t.py", line 9, in main\n'
            f"[rank{rank}]: torch.distributed.DistBackendError: [{rank}] is setting up NCCL communicator and retrieving "
            "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset\n"
        )
    (tmp_path / "rank_0.log").write_text(
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/work/t.py", line 9, in main\n'
        "[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 24/32 clients joined.\n"
    )
    verdict = analyze(tmp_path).verdict

    assert (verdict.category, verdict.ranks) == ("missing_node", list(range(16, 24)))


def test_two_ranks_of_two_that_disagree_about_zero_parameters_are_both_named(tmp_path: Path):
    told = "[rank1]: RuntimeError: disagreement between rank0 and rank1: rank0: [6, 7], rank1: [4, 5]"
    header = ("[rank1]: Traceback (most recent call last):", '[rank1]:   File "/work/t.py", line 9, in main')
    two = verdict_of(tmp_path, "dist_world_size=2", *header, told)
    (tmp_path / "run.log").write_text("\n".join(["dist_world_size=4", *header, told]) + "\n")
    four = analyze(tmp_path / "run.log", world_size=4).verdict

    assert (two.category, two.ranks) == ("zero_mismatch", [0, 1])
    assert (four.category, four.ranks) == ("zero_mismatch", [1])


def test_a_process_that_begins_is_not_the_one_that_failed_above_it(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2",
        "Traceback (most recent call last):",
        '  File "/work/train.py", line 9, in main',
        "    init_process_group()",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: "
        "12910, useIpv6: true, code: -98, name: EADDRINUSE, message: address already in use",
        "Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2",
    )

    assert verdict.ranks != [1]


def test_a_ray_task_that_is_named_above_its_exception_is_the_one_that_raised_it(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        "(TorchTrainer pid=45001) Started distributed worker processes: ",
        "(TorchTrainer pid=45001) - (ip=10.0.0.5, pid=45090) world_rank=0, local_rank=0, node_rank=0",
        "(TorchTrainer pid=45001) - (ip=10.0.0.7, pid=9012) world_rank=1, local_rank=0, node_rank=1",
        "ray.exceptions.RayTaskError(ValueError): ray::_RayTrainWorker__execute.get_next() (pid=9012, ip=10.0.0.7, "
        "actor_id=a81f3bd701000000, repr=<ray.train._internal.worker_group.RayTrainWorker object at 0x7f3a5a1dcf40>)",
        '  File "/home/ray/train.py", line 96, in train_loop_per_worker',
        '    loss = criterion(logits, batch["label"].float())',
        "ValueError: Target size (torch.Size([219])) must be the same as input size (torch.Size([219, 1]))",
    )

    assert (verdict.category, verdict.ranks) == ("shape_mismatch", [1])


def test_a_pod_whose_node_is_shut_down_takes_its_ranks_with_it(tmp_path: Path):
    for pod, ranks in (("train-master-0", (0, 1)), ("train-worker-2", (6, 7))):
        (tmp_path / f"{pod}.log").write_text(
            "".join(f"[init] rank {rank}/8 local_rank {rank % 2} host {pod}\n" for rank in ranks)
            + "2026-11-30 19:00:01,000 INFO step 1 loss 1.5\n"
        )
    (tmp_path / "events.txt").write_text(
        "112s        Warning   NodeShutdown   pod/train-worker-2   Pod was terminated in response to imminent node shutdown.\n"
    )
    verdict = analyze(tmp_path).verdict

    assert (verdict.category, verdict.ranks) == ("preempted", [6, 7])
