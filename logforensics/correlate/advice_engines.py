"""Advice on DeepSpeed's and the trainers' configuration files: sizes, precision, offload, quantization, timeouts."""

from __future__ import annotations

from collections.abc import Iterator

from logforensics.configs import Config, last_part
from logforensics.language import _
from logforensics.model import Advice

_REFUSED = frozenset({"config_error"})
_MOST_NAMED = 4
_THREE = [f"{stem}{mark}3" for stem in ("zero", "stage", "z") for mark in ("", "_", "-")]
_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_BIG_BUCKET = 5e8
_LONG_WAIT_S = 6 * 3600
_OFF = {None, "none", "false", "no", "off", "0", ""}


# -- DeepSpeed -----------------------------------------------------------------------------------------------------


def deepspeed_advice(config: Config, ranks: int | None, *, filled: bool) -> Iterator[Advice]:
    """Yield what is wrong in a DeepSpeed file. ``filled``: Accelerate or a trainer fills in what says "auto"."""

    def say(key: str, text: str, supports: frozenset[str] = frozenset()) -> Advice:
        return Advice(config.source, config.line(key), text, supports)

    if config.on("fp16.enabled") and config.on("bf16.enabled"):
        yield say("bf16.enabled", _("fp16 and bf16 are both enabled; DeepSpeed refuses to start with both"), _REFUSED)
    yield from _batch_sizes(config, ranks)
    automatic = [key for key, value in config.values.items() if str(value).strip().lower() == "auto"]
    if automatic and not filled:
        text = _(
            '{keys} are "auto": the Hugging Face Trainer and Accelerate fill that in, deepspeed.initialize does not'
        )
        names = ", ".join(automatic[:_MOST_NAMED]) + (", ..." if len(automatic) > _MOST_NAMED else "")
        yield say(automatic[0], text.format(keys=names))
    yield from _offload(config)
    buckets = [
        key
        for key in ("zero_optimization.reduce_bucket_size", "zero_optimization.allgather_bucket_size")
        if (config.number(key) or 0) >= _BIG_BUCKET
    ]
    if config.on("zero_optimization.overlap_comm") and buckets:
        text = _(
            "overlap_comm with {keys} of {size:,.0f} elements keeps several gigabytes of each GPU for buckets; lower "
            "them to 2e8 if memory is short"
        )
        names = ", ".join(key.rpartition(".")[2] for key in buckets)
        yield say(buckets[0], text.format(keys=names, size=config.number(buckets[0])))


def _batch_sizes(config: Config, ranks: int | None) -> Iterator[Advice]:
    """DeepSpeed refuses a total that is not the product of its parts."""
    total, micro, steps = (config.whole(key) for key in _BATCH)
    if total is None or micro is None or micro <= 0:
        return
    steps = steps or 1
    if ranks and "gradient_accumulation_steps" in config.values and total != micro * steps * ranks:
        text = _(
            "train_batch_size {total} is not {micro} per GPU x {steps} accumulation steps x {ranks} ranks = {product}"
        )
    elif total % (micro * steps):
        text = _("train_batch_size {total} is no multiple of {micro} per GPU x {steps} accumulation steps")
    else:
        return
    words = text.format(total=total, micro=micro, steps=steps, ranks=ranks, product=micro * steps * (ranks or 1))
    yield Advice(config.source, config.line("train_batch_size"), words, _REFUSED)


def _offload(config: Config) -> Iterator[Advice]:
    stage = config.whole("zero_optimization.stage") or 0
    for part, least in (("offload_param", 3), ("offload_optimizer", 1)):
        key = f"zero_optimization.{part}.device"
        device = config.text(key)
        if device is None:
            continue
        if stage < least:
            text = _("{part} needs ZeRO stage {least} or higher; this is stage {stage}, where it does nothing")
            yield Advice(config.source, config.line(key), text.format(part=part, least=least, stage=stage))
        elif device == "nvme" and config.text(f"zero_optimization.{part}.nvme_path") is None:
            text = _("{part} goes to nvme, but nvme_path is not set")
            yield Advice(config.source, config.line(key), text.format(part=part), _REFUSED)
        elif device == "cpu" and config.on(f"zero_optimization.{part}.pin_memory"):
            text = _(
                "{part} to cpu with pin_memory locks host memory of every rank: a container's or job's limit on memory "
                "ends the run with exit code -9 and no message"
            )
            yield Advice(config.source, config.line(key), text.format(part=part), frozenset({"host_oom"}))


# -- trainers ------------------------------------------------------------------------------------------------------


def trainer_advice(config: Config, configs: list[Config]) -> Iterator[Advice]:
    """Yield what is wrong in a trainer's file, seen with the other files of the run."""
    four_bit = _four_bit(config)
    if four_bit is not None:
        place = config.source, config.line(four_bit)
        if _is_zero_three(config, configs):
            yield Advice(
                *place,
                _(
                    "4-bit loading (QLoRA) with ZeRO-3 is known to be unstable: every rank loads the weights whole, "
                    "and gathering or saving them can fail. Use ZeRO-2 or DDP, or load without quantization"
                ),
                frozenset({"zero_mismatch"}),
            )
        elif _is_fsdp(config, configs) and _storage(config) in {None, "uint8"}:
            yield Advice(
                *place,
                _(
                    "4-bit loading (QLoRA) with FSDP works only if bnb_4bit_quant_storage is the floating type of the "
                    "other weights (bfloat16); FSDP cannot shard the integers that are the default"
                ),
                frozenset({"shape_mismatch"}),
            )
    wait = config.ending("ddp_timeout")
    seconds = config.number(wait) if wait else None
    if wait and seconds is not None and seconds > _LONG_WAIT_S:
        text = _(
            "ddp_timeout is {hours:,.0f} hours: when a rank hangs, the others wait that long before anybody says so"
        )
        yield Advice(config.source, config.line(wait), text.format(hours=seconds / 3600))
    half, brain = config.ending("fp16"), config.ending("bf16")
    if half and brain and config.on(half) and config.on(brain):
        yield Advice(config.source, config.line(brain), _("fp16 and bf16 are both on; only one can be"), _REFUSED)
    if _engine(config) and _own_fsdp(config):
        yield Advice(
            config.source,
            config.line(config.ending("fsdp") or "fsdp"),
            _("deepspeed and fsdp are both configured; only one of them can share the model out"),
            _REFUSED,
        )


def _four_bit(config: Config) -> str | None:
    """The setting that loads the model in 4 bits."""
    key = config.ending("load_in_4bit")
    if key and config.on(key):
        return key
    key = config.ending("quantization_bit")
    return key if key and config.whole(key) == 4 else None


def _engine(config: Config) -> str | None:
    """What a trainer says of DeepSpeed: a file's or a preset's name."""
    for name in ("deepspeed", "deepspeed_config"):
        key = config.ending(name)
        text = config.text(key) if key else None
        if text is not None and text.lower() not in _OFF:
            return text
    return None


def _is_zero_three(config: Config, configs: list[Config]) -> bool:
    engine = _engine(config)
    inside = config.ending("stage")
    if inside and "zero_optimization" in inside:
        return config.whole(inside) == 3
    others = [other for other in configs if other is not config]
    if engine is not None:
        name = last_part(engine)
        for other in others:
            if other.kind == "deepspeed" and last_part(other.source) == name:
                return other.whole("zero_optimization.stage") == 3
        return any(mark in name.lower() for mark in _THREE)
    stages = {
        stage
        for other in others
        for key in ("zero_optimization.stage", "deepspeed_config.zero_stage")
        if (stage := other.whole(key)) is not None
    }
    return stages == {3}


def _own_fsdp(config: Config) -> bool:
    key, strategy = config.ending("fsdp"), config.ending("strategy")
    text = config.text(key) if key else None
    return (text is not None and text.lower() not in _OFF) or bool(
        strategy and (config.text(strategy) or "").lower() == "fsdp"
    )


def _is_fsdp(config: Config, configs: list[Config]) -> bool:
    return _own_fsdp(config) or any(
        other.kind == "accelerate" and (other.text("distributed_type") or "").upper() == "FSDP" for other in configs
    )


def _storage(config: Config) -> str | None:
    key = config.ending("bnb_4bit_quant_storage")
    return config.text(key) if key else None


# -- between kinds of files ----------------------------------------------------------------------------------------


def precision_advice(configs: list[Config]) -> Iterator[Advice]:
    """Yield the files that ask for another precision than the DeepSpeed file; Accelerate and trainers refuse that."""
    engines = {name for config in configs if config.kind == "deepspeed" if (name := _precision(config))}
    if len(engines) != 1:
        return
    (enabled,) = engines
    for config in configs:
        wanted = _precision(config) if config.kind != "deepspeed" else None
        if wanted and wanted != enabled:
            key = "mixed_precision" if config.kind == "accelerate" else config.ending(wanted) or wanted
            text = _("this asks for {wanted}, but the DeepSpeed configuration enables {enabled}")
            yield Advice(config.source, config.line(key), text.format(wanted=wanted, enabled=enabled), _REFUSED)


def _precision(config: Config) -> str | None:
    """ "fp16" or "bf16", where a file asks for one of them."""
    if config.kind == "accelerate":
        wanted = (config.text("mixed_precision") or "").lower()
        return wanted if wanted in {"fp16", "bf16"} else None
    found = []
    for name in ("fp16", "bf16"):
        key = f"{name}.enabled" if config.kind == "deepspeed" else config.ending(name)
        if key and config.on(key):
            found.append(name)
    return found[0] if len(found) == 1 else None
