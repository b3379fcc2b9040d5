"""Configuration files as Accelerate, DeepSpeed and trainers have them."""

from __future__ import annotations

import json
from typing import Any

ACCELERATE = """\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_GPU
downcast_bf16: 'no'
gpu_ids: all
machine_rank: {rank}
main_process_ip: {ip}
main_process_port: {port}
main_training_function: main
mixed_precision: bf16
num_machines: {machines}
num_processes: {processes}
rdzv_backend: static
same_network: {same_network}
use_cpu: false
"""


def accelerate(
    rank: int = 0,
    *,
    ip: str = "10.0.0.4",
    port: int = 29500,
    machines: int = 2,
    processes: int = 16,
    same_network: bool = True,
    **changed: str,
) -> str:
    """The file that `accelerate config` writes; ``changed`` replaces whole settings."""
    text = ACCELERATE.format(
        rank=rank, ip=ip, port=port, machines=machines, processes=processes, same_network=str(same_network).lower()
    )
    lines = [line for line in text.splitlines() if line.partition(":")[0] not in changed]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in changed.items())]) + "\n"


def deepspeed(**changed: Any) -> str:
    """A ZeRO-2 file; dotted names with __ change what is inside a table, None removes it."""
    table: dict[str, Any] = {
        "train_batch_size": 32,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "overlap_comm": False, "reduce_bucket_size": 2e8},
    }
    for name, value in changed.items():
        *path, last = name.split("__")
        inner = table
        for part in path:
            inner = inner.setdefault(part, {})
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = value
    return json.dumps(table, indent=2)


LLAMA_FACTORY = """\
### model
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
quantization_bit: 4

### method
stage: sft
do_train: true
finetuning_type: lora
deepspeed: examples/deepspeed/ds_z3_config.json

### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
bf16: true
ddp_timeout: 180000000
"""

FORGE = """\
model:
  name_or_path: "meta-llama/Llama-3.1-8B-Instruct"
  load_in_4bit: true
training:
  per_device_train_batch_size: 4
  gradient_accumulation_steps: 2
  learning_rate: 2.0e-5
distributed:
  strategy: "deepspeed"
  deepspeed_config: "{preset}"
auth:
  hf_token: "hf_secret"
"""

AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3-8B
load_in_4bit: true
adapter: qlora
micro_batch_size: 1
gradient_accumulation_steps: 4
learning_rate: 0.0002
bf16: auto
fsdp:
  - full_shard
  - auto_wrap
fsdp_config:
  fsdp_offload_params: true
"""
