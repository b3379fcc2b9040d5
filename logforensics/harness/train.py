"""The training script that the launchers start: init, wrap, train with accumulation, evaluate, checkpoint.

Run as a file. Its plan comes from the file named in LOGFORENSICS_PLAN and not from arguments, because
launchers print command lines, and a log must not say what was injected into it.
"""

from __future__ import annotations

import datetime
import importlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from logforensics.harness import inject
from logforensics.harness.dialects import Log, open_log
from logforensics.harness.plan import WRAPPED, Plan


class Job:
    """What one rank of the run knows and holds."""

    def __init__(self, plan: Plan, work: Path) -> None:
        self.plan = plan
        self.work = work
        self.rank = int(os.environ.get("RANK", "0"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.guilty = self.rank == plan.rank
        self.log: Log = open_log(plan, self.rank)
        self.engine: Any = None
        self.device: Any = None
        self.oddity: Any = None


def load_job() -> Job:
    """The job from the plan file that the harness left beside the run."""
    import json

    path = Path(os.environ["LOGFORENSICS_PLAN"])
    return Job(Plan.from_mapping(json.loads(path.read_text())), path.parent)


def init_process_group(job: Job) -> None:
    """Join the default process group, through DeepSpeed where the strategy is one of its own."""
    from logforensics.harness.strategies import obey_timeout, prepare_deepspeed

    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    plan = job.plan
    torch.manual_seed(plan.seed)
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=plan.timeout)
    if plan.device == "cuda":
        number = 0 if plan.share_gpu else job.local_rank % torch.cuda.device_count()
        job.device = torch.device("cuda", number)
        torch.cuda.set_device(job.device)
    else:
        job.device = torch.device("cpu")
    obey_timeout(timeout)
    if plan.strategy.startswith("zero"):
        prepare_deepspeed()
        deepspeed: Any = importlib.import_module("deepspeed")
        deepspeed.init_distributed(dist_backend=plan.backend, timeout=timeout)
    else:
        dist.init_process_group(plan.backend, timeout=timeout)
    version = torch.__version__
    job.log.say(f"process group ready: rank {job.rank} of {plan.world}, backend {plan.backend}, torch {version}")


def build(job: Job) -> None:
    """Build the model, resume when there is something to resume from, wrap it for the strategy."""
    from logforensics.harness.model import Oddity, build_model
    from logforensics.harness.strategies import build_engine, load_weights

    job.oddity = Oddity()
    model = build_model(inject.model_width(job), job.oddity)
    parameters = sum(p.numel() for p in model.parameters())
    job.log.say(f"model has {parameters} parameters, strategy {job.plan.strategy}")
    resume = inject.resume_path(job, model)
    if resume is not None:
        job.log.say(f"loading checkpoint from {resume}")
        load_weights(model, resume)
    job.engine = build_engine(job.plan, model, job.device)


def evaluate(job: Job, loader: Any, batches: int = 2) -> float:
    """The mean loss over a few batches and all ranks."""
    torch: Any = importlib.import_module("torch")
    from logforensics.harness.model import SEQUENCE

    total = torch.zeros(1, device=job.device)
    with torch.no_grad():
        for number, tokens in enumerate(loader):
            if number == batches:
                break
            total += job.engine.forward(tokens[:, : SEQUENCE + 1].to(job.device))
    torch.distributed.all_reduce(total)
    return float(total) / batches / job.plan.world


def train_epoch(job: Job, loader: Any, epoch: int, step: int) -> int:
    """One pass over the loader; returns the number of the next optimizer step."""
    from logforensics.harness.model import SEQUENCE

    plan = job.plan
    for micro, tokens in enumerate(loader, 1):
        if micro % plan.accumulate == 1 or plan.accumulate == 1:
            inject.before_step(job, step)
        last = micro % plan.accumulate == 0
        tokens = tokens[:, : SEQUENCE + 1].to(job.device)
        loss = job.engine.micro_step(tokens, last, partial(inject.check_loss, job, step))
        if last:
            job.engine.step()
            mean = inject.reduce_metric(job, step, loss.reshape(1).clone())
            job.log.progress(step, mean, epoch + micro / plan.accumulate / plan.steps_per_epoch)
            step += 1
            inject.after_step(job)
    return step


def train(job: Job) -> None:
    """The epochs, each with its evaluation and checkpoint."""
    dist: Any = importlib.import_module("torch.distributed")
    from logforensics.harness.data import build_loader

    plan = job.plan
    loader = build_loader(plan, job.rank, inject.data_folder(job))
    job.log.say("***** Running training *****")
    step = 0
    for epoch in range(plan.epochs):
        first = step
        step = train_epoch(job, loader, epoch, step)
        job.log.say(f"epoch {epoch} finished after {step - first} steps")
        dist.barrier()
        job.log.say(f"epoch {epoch} eval loss {evaluate(job, loader):.4f}")
        folder = job.work / "checkpoints" / f"step-{step}"
        job.log.say(f"Saving model checkpoint to {folder}")
        inject.before_save(job)
        job.engine.save(folder)
        dist.barrier()
    job.log.finish()
    job.log.say("training finished")


def run_rank(job: Job) -> None:
    """Everything that one rank does, from the first import to the last goodbye."""
    inject.before_imports(job)
    importlib.import_module("torch")
    inject.before_init(job)
    init_process_group(job)
    dist: Any = importlib.import_module("torch.distributed")
    try:
        build(job)
        train(job)
    except BaseException:
        inject.dump_flight_recorder(job)
        raise
    dist.destroy_process_group()


def redirect_output(job: Job) -> None:
    """One file a rank, for launchers that have no option for it."""
    folder = job.work / "logs"
    folder.mkdir(exist_ok=True)
    handle = os.open(folder / f"rank_{job.rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)


def main() -> None:
    """A rank, as torchrun, accelerate, deepspeed or srun start it."""
    job = load_job()
    if job.plan.layout == "per_rank" and job.plan.launcher != "deepspeed":
        redirect_output(job)
    if job.plan.layout in WRAPPED or job.plan.layout == "combined":
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if job.plan.record:
        record: Any = importlib.import_module("torch.distributed.elastic.multiprocessing.errors").record
        record(run_rank)(job)
    else:
        run_rank(job)


def spawned(local_rank: int, world: int) -> None:
    """A rank as torch.multiprocessing.spawn starts it."""
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(local_rank)
    os.environ["WORLD_SIZE"] = os.environ["LOCAL_WORLD_SIZE"] = str(world)
    main()


def spawn() -> None:
    """The parent of ``mp.spawn``: starts the ranks and reports the first that failed."""
    multiprocessing: Any = importlib.import_module("torch.multiprocessing")
    world = load_job().plan.world
    multiprocessing.spawn(spawned, args=(world,), nprocs=world)


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        spawn()
