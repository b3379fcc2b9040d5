"""Turns a configuration file into the event that stands for it in the timeline: its summary and what matters in it."""

from __future__ import annotations

from logforensics.configs import Config
from logforensics.model import Event
from logforensics.reader import RawEvent, Reading
from logforensics.sources import Source

# Only these settings leave the file: others may hold names, addresses of services and keys.
_SHOWN = {
    "accelerate": (
        "distributed_type", "num_machines", "num_processes", "machine_rank", "main_process_ip", "main_process_port",
        "same_network", "rdzv_backend", "mixed_precision", "deepspeed_config.zero_stage",
    ),
    "deepspeed": (
        "zero_optimization.stage", "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
        "fp16.enabled", "bf16.enabled", "zero_optimization.offload_param.device",
        "zero_optimization.offload_optimizer.device", "zero_optimization.overlap_comm",
    ),
    "trainer": (
        "deepspeed", "fsdp", "strategy", "deepspeed_config", "load_in_4bit", "quantization_bit", "bf16", "fp16",
        "per_device_train_batch_size", "micro_batch_size", "gradient_accumulation_steps", "ddp_timeout",
    ),
}  # fmt: skip
SIGNATURES = {kind: f"config/{kind}" for kind in _SHOWN}


def reading_of_config(source: Source, config: Config) -> Reading:
    """Return the one event of a configuration file."""
    shown = {key: config.values[full] for key in _SHOWN[config.kind] if (full := _full(config, key)) is not None}
    settings = ", ".join(f"{key} {value}" for key, value in shown.items())
    line = min((config.line(full) for key in shown if (full := _full(config, key))), default=1)
    event = Event(
        source=source.name,
        line=line,
        end_line=line,
        offset=config.offset(line),
        kind="config",
        signature=SIGNATURES[config.kind],
        role="context",
        message=f"{config.kind} configuration: {settings}"[:600],
        stream="config",
        attempt=source.hints.attempt or 0,
        node=config.node,
        fields={"settings": shown},
    )
    return Reading(source, [RawEvent(event)], hit_lines=1, config=config)


def _full(config: Config, key: str) -> str | None:
    if key in config.values:
        return key
    return config.ending(key) if config.kind == "trainer" else None
