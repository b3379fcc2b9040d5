"""Reads the configuration files of a run: Accelerate's, DeepSpeed's, and those of trainers (LLaMA-Factory, Axolotl...).

A file is known by the settings in it, not by its name. All settings become one flat table, "zero_optimization.stage"
-> 3; what follows from them is said in ``correlate/advice.py``. Of YAML only the parser's events are used: nothing is
built from tags, and parts that a file refers to again (aliases) are not followed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import regex

from logforensics.language import _
from logforensics.sources import Source

Value = str | int | float | bool | None

_MOST_BYTES = 256 << 10
_MOST_YAML = 64 << 10
_MOST_NESTED = 40
_MOST_LISTED = 20
_MOST_SETTINGS = 2000
_MOST_DEPTH = 8
_MOST_TEXT = 200

_NUMBER = regex.compile(r"[+-]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?:[eE][+-]?\d{1,2})?")
_TRUE, _FALSE = {"true", "yes", "on"}, {"false", "no", "off"}
_NONE = {"", "null", "none", "~"}

_DEEPSPEED = {"zero_optimization", "train_micro_batch_size_per_gpu"}
# A trainer's file has at least three of these, at whatever depth.
_TRAINER = {
    "adapter", "base_model", "bf16", "ddp_timeout", "deepspeed", "deepspeed_config", "finetuning_type", "fp16",
    "fsdp", "fsdp_config", "gradient_accumulation_steps", "learning_rate", "load_in_4bit", "load_in_8bit",
    "micro_batch_size", "model_name_or_path", "name_or_path", "num_epochs", "num_train_epochs", "output_dir",
    "per_device_train_batch_size", "quantization_bit", "strategy",
}  # fmt: skip
_ENOUGH = 3
_NO_CONFIG = (".toml", ".ini", ".cfg", ".py", ".sh", ".md", ".csv", ".html", ".css", ".js", ".ipynb")
_CERTAIN = regex.compile(
    rf"^\s*\{{?\s*\"?(?:{'|'.join(sorted(_DEEPSPEED))}|compute_environment)\"?\s*:", regex.MULTILINE
)
_KNOWN = regex.compile(
    rf"^\s*-?\s*\"?(?:{'|'.join(sorted({*_DEEPSPEED, *_TRAINER, 'compute_environment', 'distributed_type'}))})\"?\s*:",
    regex.MULTILINE,
)


class ConfigError(ValueError):
    """The file is a configuration that is broken. The text says how."""


@dataclass(frozen=True, slots=True)
class Config:
    """One configuration file. ``kind`` is "accelerate", "deepspeed" or "trainer".

    ``values`` maps dotted names to values; ``lines`` has the 1-based line of each, where it is known, and
    ``offsets`` the byte at which each line of the file begins.
    """

    source: str
    kind: str
    node: str | None
    values: dict[str, Value]
    lines: dict[str, int] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=lambda: [0])

    def number(self, key: str) -> float | None:
        """Return a setting that is a number; None when it is missing, "auto" or anything else."""
        value = self.values.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) else None

    def whole(self, key: str) -> int | None:
        """Return a setting that is a whole number; None when it is not."""
        value = self.number(key)
        return int(value) if value is not None and value == int(value) else None

    def on(self, key: str) -> bool | None:
        """Return whether a switch is on; None when it is missing, "auto" or no switch."""
        value = self.values.get(key)
        if isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        return True if text in _TRUE else False if text in _FALSE else None

    def text(self, key: str) -> str | None:
        """Return a setting as a text; None when it is missing or says "none"."""
        value = self.values.get(key)
        text = str(value).strip() if value is not None else ""
        return None if text.lower() in _NONE else text

    def ending(self, name: str) -> str | None:
        """Return the full name of the first setting whose last part is ``name``: trainers nest them differently."""
        return next((key for key in self.values if key.rpartition(".")[2] == name), None)

    def under(self, name: str) -> list[str]:
        """Return the settings inside the table ``name``."""
        return [key for key in self.values if key.startswith(name + ".")]

    def line(self, key: str) -> int:
        """Return the 1-based line of a setting; 1 when it is not known."""
        return self.lines.get(key, 1)

    def offset(self, line: int) -> int:
        """Return the byte at which a 1-based line begins."""
        return self.offsets[min(line, len(self.offsets)) - 1]

    def said_at(self, line: int) -> str | None:
        """Return the setting of a line, as "name: value"; None when none is known to be there."""
        key = next((key for key, own in self.lines.items() if own == line and key in self.values), None)
        return f"{key.rpartition('.')[2]}: {self.values[key]}" if key else None


def read_config(source: Source) -> Config | None:
    """Return the settings of a file; None when it is no configuration of a kind that is known.

    Raises ConfigError when it is one and cannot be read; OSError when the file cannot be opened.
    """
    last = regex.split(r"[/!]", source.name)[-1].lower()
    if last.endswith(_NO_CONFIG) or source.size > (_MOST_BYTES if last.endswith(".json") else _MOST_YAML):
        return None
    data = source.path.read_bytes()
    text = data.decode("utf-8", "replace")
    if not _KNOWN.search(text) and not last.endswith(".json"):
        return None
    values: dict[str, Value] = {}
    lines: dict[str, int] = {}
    try:
        if last.endswith(".json"):
            _flatten(json.loads(text), "", values)
            lines = {key: line for key in values if (line := _line_of(key, text))}
        else:
            _from_yaml(text, values, lines)
    except (ValueError, RecursionError) as error:
        if not _CERTAIN.search(text):
            return None
        raise ConfigError(" ".join(str(error).split())[:_MOST_TEXT] or "nested too deep") from error
    kind = _kind(values)
    offsets = [0, *accumulate(len(line) + 1 for line in data.split(b"\n")[:-1])]
    return Config(source.name, kind, source.hints.node, values, lines, offsets) if kind else None


def _kind(values: dict[str, Value]) -> str | None:
    top = {key.partition(".")[0] for key in values}
    if "compute_environment" in top or ("distributed_type" in top and top & {"num_processes", "num_machines"}):
        return "accelerate"
    tables = {key.partition(".")[0] for key in values if "." in key}
    if top & _DEEPSPEED or ("train_batch_size" in top and tables & {"fp16", "bf16", "optimizer"}):
        return "deepspeed"
    return "trainer" if len(_TRAINER & {key.rpartition(".")[2] for key in values} | _TRAINER & top) >= _ENOUGH else None


def _flatten(value: Any, name: str, values: dict[str, Value], depth: int = 0) -> None:
    if depth > _MOST_DEPTH or len(values) >= _MOST_SETTINGS:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            _flatten(item, f"{name}.{key}" if name else str(key)[:_MOST_TEXT], values, depth + 1)
    elif isinstance(value, list):
        values[name] = ", ".join(
            str(item)[:_MOST_TEXT] for item in value[:_MOST_LISTED] if not isinstance(item, dict | list)
        )
    elif isinstance(value, str):
        values[name] = value[:_MOST_TEXT]
    elif value is None or isinstance(value, bool | int | float):
        values[name] = value


def _line_of(key: str, text: str) -> int | None:
    found = regex.search(rf'"{regex.escape(key.rpartition(".")[2])}"\s*:', text)
    return text.count("\n", 0, found.start()) + 1 if found else None


def _from_yaml(text: str, values: dict[str, Value], lines: dict[str, int]) -> None:
    """Take the settings of the first document from the parser's events; nothing is built, no alias followed."""
    import yaml

    open_: list[_Level] = []
    try:
        for event in yaml.parse(text, Loader=yaml.BaseLoader):
            if isinstance(event, yaml.DocumentEndEvent):
                return
            if isinstance(event, yaml.CollectionStartEvent):
                if len(open_) >= _MOST_NESTED:
                    raise ConfigError(_("nested more than {most} deep").format(most=_MOST_NESTED))
                name = open_[-1].take() if open_ else ""
                open_.append(_Level(name, [] if isinstance(event, yaml.SequenceStartEvent) else None))
            elif isinstance(event, yaml.CollectionEndEvent):
                level = open_.pop()
                if level.items:
                    values.setdefault(level.name, ", ".join(level.items))
            elif isinstance(event, yaml.ScalarEvent) and open_:
                _scalar(event.value[:_MOST_TEXT], event.start_mark.line + 1, open_[-1], values, lines)
            elif isinstance(event, yaml.AliasEvent) and open_:
                open_[-1].take()
    except yaml.YAMLError as error:
        raise ConfigError(" ".join(str(error).split())) from error


@dataclass(slots=True)
class _Level:
    """An open table or list of a YAML file. ``key`` is the one whose value comes next."""

    name: str
    items: list[str] | None
    key: str | None = None

    def take(self) -> str:
        """Return the full name of what comes next."""
        key, self.key = self.key, None
        return f"{self.name}.{key}" if key and self.name else key or self.name


def _scalar(text: str, line: int, level: _Level, values: dict[str, Value], lines: dict[str, int]) -> None:
    if level.items is not None:
        if len(level.items) < _MOST_LISTED:
            level.items.append(text)
    elif level.key is None:
        level.key = text
        if len(lines) < _MOST_SETTINGS:
            lines.setdefault(f"{level.name}.{text}" if level.name else text, line)
    else:
        name = level.take()
        if len(values) < _MOST_SETTINGS:
            values.setdefault(name, text)


def last_part(path: str) -> str:
    """Return the file's own name in a path, whoever wrote it: behind slashes, backslashes and an archive's mark."""
    return path.replace("\\", "/").replace("!", "/").rpartition("/")[2]
