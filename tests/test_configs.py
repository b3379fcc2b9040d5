"""Configuration files are known by what is in them, read without trust, and never make or outrank a failure."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from config_texts import AXOLOTL, FORGE, LLAMA_FACTORY, accelerate, deepspeed
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import Program
from reading import write

from logforensics import analyze
from logforensics.analysis import Analysis
from logforensics.configs import Config, ConfigError, read_config
from logforensics.layout import Hints
from logforensics.render.json_report import json_text, schema
from logforensics.sniff import kind_of
from logforensics.sources import Source

LOG = "2026-09-21 12:00:01,000 INFO init done: rank={rank} world={world} backend=nccl\nstep 1 loss 0.5\n"
FINISHED = LOG.format(rank=0, world=16) + "Training completed. Do not forget to share your model\n"
REFUSED = (
    "[rank{rank}]: torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to "
    "connect to (10.0.0.4, 29500).\n"
)


def read(folder: Path, name: str, content: str | bytes) -> Config | None:
    path = write(folder, {name: content}) / name
    return read_config(Source(name, path, path.stat().st_size, 0, "config", Hints()))


def judged(folder: Path, files: dict[str, str | bytes]) -> Analysis:
    return analyze(write(folder, files), use_cache=False)


# -- what is one ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("default_config.yaml", accelerate(), "accelerate"),
        ("anything.yml", accelerate(), "accelerate"),
        ("default_config.json", json.dumps({"compute_environment": "LOCAL_MACHINE", "num_machines": 2}), "accelerate"),
        ("ds.json", deepspeed(), "deepspeed"),
        ("ds.yaml", "zero_optimization:\n  stage: 3\n", "deepspeed"),
        ("run.yaml", LLAMA_FACTORY, "trainer"),
        ("run.yaml", FORGE, "trainer"),
        ("run.yaml", AXOLOTL, "trainer"),
        ("config.json", '{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096}', None),
        ("trainer_state.json", '{"epoch": 1.0, "log_history": [{"learning_rate": 1e-5, "loss": 0.5}]}', None),
        ("values.yaml", "replicas: 3\nimage: nginx\n", None),
        ("empty.yaml", "", None),
        ("list.json", "[1, 2]", None),
    ],
)
def test_a_file_is_known_by_its_settings(tmp_path: Path, name: str, content: str, kind: str | None) -> None:
    config = read(tmp_path, name, content)

    assert (config.kind if config else None) == kind


def test_settings_have_their_values_and_lines(tmp_path: Path) -> None:
    config = read(tmp_path, "a.yaml", "# mine\n" + accelerate(1))

    assert config is not None
    assert (config.whole("machine_rank"), config.line("machine_rank")) == (1, 7)
    assert (config.on("same_network"), config.on("use_cpu"), config.on("debug")) == (True, False, False)
    assert (config.text("main_process_ip"), config.said_at(8)) == ("10.0.0.4", "main_process_ip: 10.0.0.4")
    assert config.text("not there") is None


def test_json_settings_have_their_lines(tmp_path: Path) -> None:
    config = read(tmp_path, "ds.json", deepspeed())

    assert config is not None
    assert (config.number("zero_optimization.stage"), config.line("zero_optimization.stage")) == (2, 9)
    assert config.number("train_batch_size") == 32


def test_auto_is_no_number(tmp_path: Path) -> None:
    config = read(tmp_path, "ds.json", deepspeed(train_batch_size="auto", bf16__enabled="auto"))

    assert config is not None
    assert (config.number("train_batch_size"), config.on("bf16.enabled")) == (None, None)


@pytest.mark.parametrize(
    ("name", "head", "explicit", "kind"),
    [
        ("default_config.yaml", accelerate().encode(), True, "config"),
        ("node-a.conf", accelerate().encode(), False, "config"),
        ("ds.json", deepspeed().encode(), True, "config"),
        ("run.log", b"$ cat accelerate.yaml\n" + accelerate().encode() + b"step 1 loss 0.5 at 12:00\n", False, "log"),
        ("run.json", b'{"log": "the \\"zero_optimization\\": {} section", "stream": "stderr"}\n', True, "log"),
    ],
)
def test_a_log_that_quotes_a_configuration_stays_a_log(name: str, head: bytes, explicit: bool, kind: str) -> None:
    assert kind_of(name, head, explicit=explicit) == kind


# -- hostile -------------------------------------------------------------------------------------------------------

LAUGHS = "compute_environment: &a [x, x]\n" + "".join(
    f"{name}: &{name} [*{other}, *{other}, *{other}]\n" for other, name in zip("abcdefghij", "bcdefghijk", strict=True)
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("deep.yaml", "compute_environment: x\ndeep: " + "[" * 20_000),
        ("torn.yaml", 'compute_environment: "LOCAL\nnum_machines: 2\n'),
        ("torn.json", deepspeed()[:-20]),
        ("deep.json", '{"zero_optimization": ' + "[" * 100_000),
        ("tag.yaml", 'compute_environment: !!python/object/apply:os.system ["touch /tmp/x"]\n: :\n- ]'),
    ],
)
def test_what_cannot_be_read_safely_is_refused(tmp_path: Path, name: str, content: str) -> None:
    with pytest.raises(ConfigError):
        read(tmp_path, name, content)


def test_what_a_file_refers_to_again_is_not_followed(tmp_path: Path) -> None:
    config = read(tmp_path, "laughs.yaml", LAUGHS + "num_machines: 2\n")

    assert config is not None
    assert config.values == {"compute_environment": "x, x", "num_machines": "2"}


def test_a_tag_builds_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    content = f'compute_environment: !!python/object/apply:os.system ["touch {mark}"]\nnum_machines: 2\n'

    config = read(tmp_path, "a.yaml", content)

    assert config is not None
    assert config.values["num_machines"] == "2"
    assert not mark.exists()


def test_a_broken_configuration_is_one_note_and_the_rest_is_analysed(tmp_path: Path) -> None:
    analysis = judged(tmp_path, {"run.log": FINISHED, "ds.json": deepspeed()[:-20]})

    assert [note.source for note in analysis.notes] == ["ds.json"]
    assert analysis.notes[0].what.startswith("a configuration that cannot be read: ")
    assert analysis.verdict.status == "no_failure"


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    for name in ("a.yaml", "a.json", "a"):
        for content in (data, b"compute_environment: x\n" + data, b'{"zero_optimization": {}, ' + data):
            try:
                read(folder, name, content)
            except ConfigError as error:
                assert str(error)


# -- in an analysis ------------------------------------------------------------------------------------------------


def test_a_configuration_is_an_event_with_what_matters_in_it_and_no_secrets(tmp_path: Path) -> None:
    analysis = judged(tmp_path, {"run.log": FINISHED, "config.yaml": FORGE.format(preset="zero2")})

    (event,) = [event for event in analysis.events if event.stream == "config"]
    assert (event.kind, event.signature, event.role) == ("config", "config/trainer", "context")
    assert event.fields["settings"]["deepspeed_config"] == "zero2"
    assert "hf_secret" not in analysis.timeline.write_json()


def test_advice_reaches_the_report_and_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, {"run.log": FINISHED, "config.yaml": FORGE.format(preset="zero3")})

    analysis = analyze(tmp_path, use_cache=False)
    document = json.loads(json_text(analysis))
    ran = Program(monkeypatch, capfd)("analyze", tmp_path)

    jsonschema.validate(document, schema())
    assert [line.partition(" ")[0] for line in document["verdict"]["advice"]] == ["config.yaml:3:"]
    assert "From the configuration files" in ran.out
    assert "QLoRA" in ran.out


def test_contradicting_files_make_no_failure(tmp_path: Path) -> None:
    files = {"run.log": FINISHED, "node0/acc.yaml": accelerate(0), "node1/acc.yaml": accelerate(0, port=29501)}

    analysis = judged(tmp_path, files)

    assert (analysis.verdict.status, analysis.verdict.confidence) == ("no_failure", "high")
    assert len(analysis.verdict.advice) == 2


def test_contradicting_files_support_a_rendezvous_that_failed(tmp_path: Path) -> None:
    files = {
        "node0/acc.yaml": accelerate(0),
        "node1/acc.yaml": accelerate(1, port=29501),
        "node1/run.log": "".join(REFUSED.format(rank=rank) for rank in range(8, 16)),
    }

    analysis = judged(tmp_path, files)

    assert analysis.verdict.category == "rendezvous"
    assert any("The configuration files fit this" in line for line in analysis.verdict.explanation)
    last = analysis.verdict.evidence[-1]
    assert (last.source, last.line, last.text) == ("node1/acc.yaml", 8, "main_process_port: 29501")
    assert analysis.verdict.evidence[0].source == "node1/run.log"


def test_a_failure_in_the_logs_is_not_explained_by_configurations(tmp_path: Path) -> None:
    oom = (
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/home/user/project/train.py", line 113, in train_epoch\n'
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of "
        "79.10 GiB of which 1.00 GiB is free.\n"
    )
    files = {
        "node0/acc.yaml": accelerate(0),
        "node1/acc.yaml": accelerate(0),
        "run.log": LOG.format(rank=1, world=2) + oom,
    }

    alone = judged(tmp_path / "alone", {"run.log": files["run.log"]})
    analysis = judged(tmp_path / "with", files)

    assert (analysis.verdict.category, analysis.verdict.ranks) == ("cuda_oom", [1])
    assert analysis.verdict.confidence == alone.verdict.confidence
    assert not any("configuration files" in line for line in analysis.verdict.explanation)
    assert analysis.identity.world_size == 2


def test_files_of_restarts_do_not_become_an_attempt(tmp_path: Path) -> None:
    files = {
        "ranks/none_x/attempt_1/0/stderr.log": LOG.format(rank=0, world=1),
        "acc.yaml": accelerate(0, machines=1, processes=1),
    }

    assert judged(tmp_path, files).attempts[0].number == 1
