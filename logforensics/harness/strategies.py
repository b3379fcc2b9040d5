"""DDP, FSDP1, FSDP2 and DeepSpeed ZeRO behind one small interface, with the presets people use.

Training side. What CPU needs is written where it is needed: FSDP1 wants device_id=cpu, DeepSpeed must not
compile at run time, and ZeRO-1/2 make a group of their own that ignores the timeout unless torch's default is
changed.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logforensics.harness.plan import Plan


def _torch(name: str = "torch") -> Any:
    return importlib.import_module(name)


class Engine:
    """Plain DDP; the other strategies override what differs."""

    def __init__(self, plan: Plan, model: Any, device: Any) -> None:
        self.plan = plan
        self.device = device
        self.model = model.to(device)
        self.net: Any = self.wrap()
        self.optimizer = self.make_optimizer()

    def wrap(self) -> Any:
        """The model as the strategy trains it."""
        ids = [self.device.index] if self.device.type == "cuda" else None
        return _torch("torch.nn.parallel").DistributedDataParallel(self.model, device_ids=ids)

    def make_optimizer(self) -> Any:
        """AdamW over whatever the wrapped model calls its parameters."""
        return _torch().optim.AdamW(self.net.parameters(), lr=1e-3)

    def holding_gradients(self) -> Any:
        """The context in which gradients are accumulated without being exchanged."""
        return self.net.no_sync()

    def micro_step(self, tokens: Any, last: bool, check: Callable[[Any], Any]) -> Any:
        """Forward and backward of one micro-batch; ``check`` sees, and may change, the loss in between."""
        with contextlib.nullcontext() if last else self.holding_gradients():
            loss = check(self.net(tokens))
            (loss / self.plan.accumulate).backward()
        return loss.detach()

    def step(self) -> None:
        """One optimizer step."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def forward(self, tokens: Any) -> Any:
        """The loss of a batch, for evaluation."""
        return self.net(tokens)

    def save(self, folder: Path) -> None:
        """Write a checkpoint; every rank calls it."""
        torch = _torch()
        if torch.distributed.get_rank() == 0:
            folder.mkdir(parents=True, exist_ok=True)
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save(state, folder / "checkpoint.pt")

    def load(self, path: Path) -> None:
        """Read model weights saved by :meth:`save` into the plain model, before it is wrapped."""
        load_weights(self.model, path)


def load_weights(model: Any, path: Path) -> None:
    """What every script does with ``--resume``: torch.load and load_state_dict."""
    state = _torch().load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])


class _Fsdp1(Engine):
    """FullyShardedDataParallel with one unit a block."""

    def wrap(self) -> Any:
        fsdp = _torch("torch.distributed.fsdp")
        policy = _torch("torch.distributed.fsdp.wrap").ModuleWrapPolicy({self.model.block_type})
        sharding = self.plan.strategy.partition("-")[2]
        mesh = None
        if sharding == "hybrid_shard":
            shape = (2, self.plan.world // 2) if self.plan.world >= 4 else (1, self.plan.world)
            names = ("replicate", "shard")
            device_mesh = _torch("torch.distributed.device_mesh")
            mesh = device_mesh.init_device_mesh(self.device.type, shape, mesh_dim_names=names)
        return fsdp.FullyShardedDataParallel(
            self.model,
            auto_wrap_policy=policy,
            sharding_strategy=fsdp.ShardingStrategy[sharding.upper()],
            device_id=self.device,
            device_mesh=mesh,
            use_orig_params=True,
        )

    def save(self, folder: Path) -> None:
        torch, fsdp = _torch(), _torch("torch.distributed.fsdp")
        # with offload_to_cpu on a CPU model torch 2.13 dies of SIGSEGV here
        config = fsdp.FullStateDictConfig(offload_to_cpu=False, rank0_only=False)
        with fsdp.FullyShardedDataParallel.state_dict_type(self.net, fsdp.StateDictType.FULL_STATE_DICT, config):
            state = self.net.state_dict()
        if torch.distributed.get_rank() == 0:
            folder.mkdir(parents=True, exist_ok=True)
            torch.save({"model": state}, folder / "checkpoint.pt")


class _Fsdp2(Engine):
    """fully_shard on each block and on the root."""

    def wrap(self) -> Any:
        fsdp = _torch("torch.distributed.fsdp")
        device_mesh = _torch("torch.distributed.device_mesh")
        mesh = device_mesh.init_device_mesh(self.device.type, (self.plan.world,))
        for block in self.model.blocks:
            fsdp.fully_shard(block, mesh=mesh)
        fsdp.fully_shard(self.model, mesh=mesh)
        return self.model

    def micro_step(self, tokens: Any, last: bool, check: Callable[[Any], Any]) -> Any:
        self.net.set_requires_gradient_sync(last)
        loss = check(self.net(tokens))
        (loss / self.plan.accumulate).backward()
        return loss.detach()

    def save(self, folder: Path) -> None:
        checkpoint = _torch("torch.distributed.checkpoint")
        checkpoint.save({"model": self.model.state_dict()}, checkpoint_id=str(folder))


class _Zero(Engine):
    """A DeepSpeed engine; stage and offload by the strategy's name."""

    def wrap(self) -> Any:
        deepspeed = _torch("deepspeed")
        self.engine, *_ = deepspeed.initialize(model=self.model, config=deepspeed_config(self.plan))
        return self.engine

    def make_optimizer(self) -> Any:
        return self.engine.optimizer

    def micro_step(self, tokens: Any, last: bool, check: Callable[[Any], Any]) -> Any:
        loss = check(self.engine(tokens))
        self.engine.backward(loss)
        self.engine.step()
        return loss.detach()

    def step(self) -> None:
        """DeepSpeed counts micro-batches itself."""

    def save(self, folder: Path) -> None:
        self.engine.save_checkpoint(str(folder.parent), tag=folder.name)


def deepspeed_config(plan: Plan) -> dict[str, Any]:
    """The ds_config of the plan's strategy: overlap, contiguous gradients, offload, as presets have it."""
    stage = int(plan.strategy[4])
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": 50000,
        "allgather_bucket_size": 50000,
    }
    if stage == 3:
        zero |= {"stage3_prefetch_bucket_size": 20000, "stage3_param_persistence_threshold": 1000}
    if plan.strategy.endswith("offload"):
        zero |= {
            "offload_optimizer": {"device": "cpu", "pin_memory": plan.device == "cuda"},
            "offload_param": {"device": "cpu", "pin_memory": plan.device == "cuda"},
        }
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": plan.accumulate,
        "gradient_clipping": 1.0,
        "steps_per_print": 5,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": zero,
    }
    if plan.fault == "batch_config":
        config["train_batch_size"] = 4 * plan.accumulate * plan.world + 2
    if plan.fault == "loss_scale":
        config["fp16"] = {"enabled": True, "initial_scale_power": 2, "loss_scale_window": 2, "hysteresis": 1}
    return config


def obey_timeout(timeout: Any) -> None:
    """Give the timeout to later groups too: ZeRO-1/2 and device meshes make some, with torch's half an hour."""
    _torch("torch.distributed.distributed_c10d").default_pg_timeout = timeout


def prepare_deepspeed() -> None:
    """Import DeepSpeed so that it does not compile at run time."""
    ops: Any = _torch("deepspeed.ops")
    ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else a C++ build of a minute before the first step


def build_engine(plan: Plan, model: Any, device: Any) -> Engine:
    """The plan's strategy around the model."""
    if plan.strategy == "ddp":
        return Engine(plan, model, device)
    if plan.strategy.startswith("fsdp1"):
        return _Fsdp1(plan, model, device)
    if plan.strategy == "fsdp2":
        return _Fsdp2(plan, model, device)
    return _Zero(plan, model, device)
