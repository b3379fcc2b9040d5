"""How the training script talks: the logging habits that people have, one class each.

Training side. Ranks that are silent in a dialect are so on purpose: half of the world logs on rank 0 only.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from logforensics.harness.plan import Plan, speaks


class Log:
    """Plain ``print`` on every rank; the other dialects change how a line looks and who says it."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan = plan
        self.rank = rank
        self.total = plan.epochs * plan.steps_per_epoch
        self.speaks = speaks(plan, rank)

    def say(self, text: str) -> None:
        """An ordinary message, from the ranks that log in this dialect."""
        if self.speaks:
            print(f"[rank {self.rank}] {text}", flush=True)

    def warn(self, text: str) -> None:
        """A warning or a survived error, from any rank."""
        print(f"[rank {self.rank}] WARNING: {text}", flush=True)

    def exception(self, text: str) -> None:
        """An exception that is being handled, with its traceback, from any rank."""
        import traceback

        print(f"[rank {self.rank}] ERROR: {text}\n{traceback.format_exc()}", file=sys.stderr, flush=True)

    def progress(self, step: int, loss: float, epoch: float) -> None:
        """One optimizer step is done."""
        self.say(f"epoch {int(epoch)} step {step} loss {loss:.4f}")

    def finish(self) -> None:
        """The loop is over; whatever is open on the screen is closed."""


class _Logging(Log):
    """The standard library's logging on every rank."""

    form = "%(asctime)s %(levelname)s [rank %(rank)s] %(name)s: %(message)s"

    def __init__(self, plan: Plan, rank: int) -> None:
        super().__init__(plan, rank)
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(self.form))
        base = logging.getLogger("train")
        base.setLevel(logging.INFO)
        base.propagate = False
        base.handlers[:] = [handler]
        self.logger = logging.LoggerAdapter(base, {"rank": rank})

    def say(self, text: str) -> None:
        if self.speaks:
            self.logger.info(text)

    def warn(self, text: str) -> None:
        self.logger.warning(text)

    def exception(self, text: str) -> None:
        self.logger.exception(text)

    def progress(self, step: int, loss: float, epoch: float) -> None:
        self.say(f"step {step} loss {loss:.4f} lr 1.00e-03")


class _LoggingPlain(_Logging):
    """logging.basicConfig without times."""

    form = "%(levelname)s:%(name)s:rank %(rank)s: %(message)s"

    def progress(self, step: int, loss: float, epoch: float) -> None:
        self.say(f"Epoch [{int(epoch)}/{self.plan.epochs}], Step [{step}/{self.total}], Loss: {loss:.4f}")


class _Tqdm(Log):
    """A progress bar on every rank, redrawn with carriage returns."""

    def __init__(self, plan: Plan, rank: int) -> None:
        super().__init__(plan, rank)
        import importlib

        self.tqdm: Any = importlib.import_module("tqdm").tqdm
        self.bar: Any = None

    def say(self, text: str) -> None:
        self.tqdm.write(f"rank {self.rank}: {text}", file=sys.stderr)

    def warn(self, text: str) -> None:
        self.tqdm.write(f"rank {self.rank}: WARNING {text}", file=sys.stderr)

    def progress(self, step: int, loss: float, epoch: float) -> None:
        if self.bar is None:
            self.bar = self.tqdm(total=self.total, desc=f"rank {self.rank}", mininterval=0)
        self.bar.update(step + 1 - self.bar.n)
        self.bar.set_postfix(loss=f"{loss:.3f}")

    def finish(self) -> None:
        if self.bar is not None:
            self.bar.close()


class _Trainer(Log):
    """transformers' Trainer: banners through its logger, dicts through print, rank 0 only."""

    def say(self, text: str) -> None:
        if self.speaks:
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            print(
                f"[INFO|trainer.py:2519] {now},{time.time_ns() // 10**6 % 1000:03d} >> {text}",
                file=sys.stderr,
            )

    def warn(self, text: str) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        print(f"[WARNING|trainer.py:868] {now},{time.time_ns() // 10**6 % 1000:03d} >> {text}", file=sys.stderr)

    def progress(self, step: int, loss: float, epoch: float) -> None:
        if self.speaks:
            numbers = {"loss": round(loss, 4), "learning_rate": 0.001, "epoch": round(epoch, 2)}
            print(numbers, flush=True)


class _Megatron(Log):
    """Megatron-LM: the iteration line on the last rank, print_rank_0 for the rest."""

    def __init__(self, plan: Plan, rank: int) -> None:
        super().__init__(plan, rank)
        self.since = time.perf_counter()

    def say(self, text: str) -> None:
        if self.speaks:
            print(text, flush=True)

    def progress(self, step: int, loss: float, epoch: float) -> None:
        now = time.perf_counter()
        elapsed, self.since = (now - self.since) * 1000, now
        if self.rank != self.plan.world - 1:
            return
        batch = 4 * self.plan.world * self.plan.accumulate
        print(
            f" [{time.strftime('%Y-%m-%d %H:%M:%S')}] iteration {step + 1:8d}/{self.total:8d} | "
            f"consumed samples: {(step + 1) * batch:12d} | elapsed time per iteration (ms): {elapsed:.1f} | "
            f"learning rate: 1.000000E-03 | global batch size: {batch:5d} | lm loss: {loss:.6E} | "
            f"loss scale: 1.0 | grad norm: 1.000 | number of skipped iterations:   0 | "
            f"number of nan iterations:   0 |",
            flush=True,
        )


def open_log(plan: Plan, rank: int) -> Log:
    """The plan's dialect, speaking for this rank."""
    kinds: dict[str, type[Log]] = {
        "print": Log,
        "logging-timed": _Logging,
        "logging-plain": _LoggingPlain,
        "tqdm": _Tqdm,
        "trainer": _Trainer,
        "megatron": _Megatron,
    }
    return kinds[plan.dialect](plan, rank)
