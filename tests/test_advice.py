"""Advice on configuration files: each rule with the file that calls for it, and the one beside it that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from config_texts import AXOLOTL, FORGE, LLAMA_FACTORY, accelerate, deepspeed

from logforensics.configs import Config, read_config
from logforensics.correlate.advice import advise
from logforensics.layout import Hints
from logforensics.model import Advice
from logforensics.sources import Source

NEVER_MET = {"rendezvous", "missing_node"}


def advice_of(folder: Path, files: dict[str, str], world_size: int | None = None) -> list[Advice]:
    configs: list[Config] = []
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        config = read_config(Source(name, path, len(content), 0, "config", Hints()))
        assert config is not None
        configs.append(config)
    return advise(configs, world_size)


def only(found: list[Advice]) -> Advice:
    (one,) = found
    return one


# -- Accelerate: between nodes ---------------------------------------------------------------------------------------


def test_nodes_that_differ_in_their_rank_alone_are_right(tmp_path: Path) -> None:
    assert advice_of(tmp_path, {f"node{rank}/acc.yaml": accelerate(rank) for rank in (0, 1)}, 16) == []


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("main_process_port", {"port": 29501}),
        ("main_process_ip", {"ip": "10.0.0.5"}),
        ("num_machines", {"machines": 1}),
        ("num_processes", {"processes": 8}),
        ("same_network", {"same_network": False}),
        ("rdzv_backend", {"rdzv_backend": "c10d"}),
        ("mixed_precision", {"mixed_precision": "fp16"}),
    ],
)
def test_what_must_be_the_same_on_every_node_is_named(tmp_path: Path, key: str, changed: dict[str, Any]) -> None:
    files = {f"node{rank}/acc.yaml": accelerate(rank) for rank in (0, 2)}
    files["node1/acc.yaml"] = accelerate(1, **changed)

    found = [advice for advice in advice_of(tmp_path, files) if advice.text.startswith(f"{key} must be the same")]

    assert only(found).source == "node1/acc.yaml"
    assert found[0].supports >= NEVER_MET
    assert (tmp_path / "node1/acc.yaml").read_text().splitlines()[found[0].line - 1].startswith(f"{key}:")


def test_a_setting_that_one_node_lacks_differs_too(tmp_path: Path) -> None:
    without = "\n".join(line for line in accelerate(1).splitlines() if not line.startswith("main_process_port")) + "\n"
    files = {"node0/acc.yaml": accelerate(0), "node1/acc.yaml": without}

    found = advice_of(tmp_path, files)

    assert "main_process_port must be the same on every node" in only(found).text
    assert "not set: node1/acc.yaml" in found[0].text


def test_two_nodes_with_one_rank_are_named(tmp_path: Path) -> None:
    found = advice_of(tmp_path, {"node0/acc.yaml": accelerate(1), "node1/acc.yaml": accelerate(1)})

    assert "machine_rank 1 is given to 2 nodes (node0/acc.yaml, node1/acc.yaml)" in only(found).text
    assert found[0].supports >= NEVER_MET


def test_a_gap_in_the_ranks_is_named(tmp_path: Path) -> None:
    files = {f"acc{rank}.yaml": accelerate(rank, machines=3, processes=24) for rank in (0, 1, 3)}

    texts = [advice.text for advice in advice_of(tmp_path, files)]

    assert any("no node has machine_rank 2" in text for text in texts)
    assert any("machine_rank 3 does not exist among 3 machines" in text for text in texts)


def test_the_file_of_one_node_alone_has_no_gap(tmp_path: Path) -> None:
    assert advice_of(tmp_path, {"acc.yaml": accelerate(1)}) == []


def test_files_of_different_runs_are_not_compared(tmp_path: Path) -> None:
    files = {"single_gpu.yaml": accelerate(machines=1, processes=1), "multi_node.yaml": accelerate()}

    assert advice_of(tmp_path, files) == []


# -- Accelerate: one file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1", "is each node itself"),
        ("localhost", "is each node itself"),
        ("0.0.0.0", "is each node itself"),
        ("172.17.0.2", "container's"),
        ("169.254.3.4", "container's"),
        ("null", "is not set"),
    ],
)
def test_a_meeting_place_that_other_machines_cannot_reach_is_named(tmp_path: Path, address: str, words: str) -> None:
    advice = only(advice_of(tmp_path, {"acc.yaml": accelerate(ip=address)}))

    assert words in advice.text
    assert advice.supports >= NEVER_MET


@pytest.mark.parametrize("address", ["10.0.0.4", "node-0.cluster", "172.16.4.1"])
def test_addresses_that_may_be_reached_are_right(tmp_path: Path, address: str) -> None:
    assert advice_of(tmp_path, {"acc.yaml": accelerate(ip=address)}) == []


def test_on_one_machine_any_address_will_do(tmp_path: Path) -> None:
    assert advice_of(tmp_path, {"acc.yaml": accelerate(ip="127.0.0.1", machines=1, processes=8)}) == []


def test_processes_that_the_machines_cannot_share_are_named(tmp_path: Path) -> None:
    advice = only(advice_of(tmp_path, {"acc.yaml": accelerate(machines=3, processes=16)}))

    assert "num_processes 16 cannot be shared equally by 3 machines" in advice.text


def test_a_distributed_type_that_starts_one_process_is_named(tmp_path: Path) -> None:
    advice = only(advice_of(tmp_path, {"acc.yaml": accelerate(distributed_type="'NO'")}))

    assert "distributed_type NO" in advice.text


def test_a_file_of_another_size_than_the_run_is_named(tmp_path: Path) -> None:
    advice = only(advice_of(tmp_path, {"acc.yaml": accelerate()}, world_size=8))

    assert "num_processes is 16, but the logs show a run of 8 ranks" in advice.text
    assert not advice.supports


# -- DeepSpeed ---------------------------------------------------------------------------------------------------------


def test_a_sound_deepspeed_file_calls_for_nothing(tmp_path: Path) -> None:
    assert advice_of(tmp_path, {"ds.json": deepspeed()}, world_size=4) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"fp16__enabled": True}, "fp16 and bf16 are both enabled"),
        ({"train_batch_size": 48}, "train_batch_size 48 is not 4 per GPU x 2 accumulation steps x 4 ranks = 32"),
        ({"zero_optimization__offload_param__device": "cpu"}, "offload_param needs ZeRO stage 3"),
        ({"zero_optimization__stage": 0, "zero_optimization__offload_optimizer__device": "cpu"}, "needs ZeRO stage 1"),
        ({"zero_optimization__offload_optimizer__device": "nvme"}, "nvme_path is not set"),
        (
            {"zero_optimization__offload_optimizer": {"device": "cpu", "pin_memory": True}},
            "locks host memory of every rank",
        ),
        (
            {"zero_optimization__overlap_comm": True, "zero_optimization__reduce_bucket_size": 5e8},
            "overlap_comm with reduce_bucket_size of 500,000,000 elements",
        ),
        ({"train_batch_size": "auto"}, 'train_batch_size are "auto"'),
    ],
)
def test_what_deepspeed_refuses_or_suffers_from_is_named(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    assert words in only(advice_of(tmp_path, {"ds.json": deepspeed(**changed)}, world_size=4)).text


def test_without_the_number_of_ranks_only_what_no_number_makes_right_is_named(tmp_path: Path) -> None:
    assert advice_of(tmp_path, {"ds.json": deepspeed(train_batch_size=48)}) == []
    assert "is no multiple of 4 per GPU" in only(advice_of(tmp_path, {"ds.json": deepspeed(train_batch_size=30)})).text


def test_what_accelerate_fills_in_may_say_auto(tmp_path: Path) -> None:
    files = {"acc.yaml": accelerate(machines=1), "ds.json": deepspeed(train_batch_size="auto")}

    assert advice_of(tmp_path, files) == []


def test_precisions_of_two_files_must_agree(tmp_path: Path) -> None:
    files = {"acc.yaml": accelerate(machines=1, mixed_precision="fp16"), "ds.json": deepspeed(train_batch_size="auto")}

    advice = only(advice_of(tmp_path, files))

    assert (advice.source, advice.text) == (
        "acc.yaml",
        "this asks for fp16, but the DeepSpeed configuration enables bf16",
    )


# -- trainers ----------------------------------------------------------------------------------------------------------


def test_qlora_with_zero_three_is_named_by_the_name_of_its_deepspeed_file(tmp_path: Path) -> None:
    texts = [advice.text for advice in advice_of(tmp_path, {"run.yaml": LLAMA_FACTORY})]

    assert any("4-bit loading (QLoRA) with ZeRO-3" in text for text in texts)
    assert any("ddp_timeout is 50,000 hours" in text for text in texts)


@pytest.mark.parametrize(("preset", "count"), [("zero3", 1), ("zero3_offload", 1), ("zero2", 0)])
def test_presets_say_which_stage_it_is(tmp_path: Path, preset: str, count: int) -> None:
    assert len(advice_of(tmp_path, {"run.yaml": FORGE.format(preset=preset)})) == count


@pytest.mark.parametrize(("stage", "count"), [(3, 1), (2, 0)])
def test_a_deepspeed_file_beside_it_says_which_stage_it_is(tmp_path: Path, stage: int, count: int) -> None:
    files = {
        "run.yaml": FORGE.format(preset="conf/mine.json"),
        "conf/mine.json": deepspeed(zero_optimization__stage=stage),
    }

    found = [advice for advice in advice_of(tmp_path, files) if "QLoRA" in advice.text]

    assert len(found) == count


def test_qlora_with_fsdp_needs_its_weights_stored_as_floats(tmp_path: Path) -> None:
    advice = only(advice_of(tmp_path, {"run.yaml": AXOLOTL}))

    assert "bnb_4bit_quant_storage" in advice.text
    assert advice_of(tmp_path, {"run.yaml": AXOLOTL + "bnb_4bit_quant_storage: bfloat16\n"}) == []


def test_accelerates_fsdp_counts_for_the_trainer(tmp_path: Path) -> None:
    files = {
        "acc.yaml": accelerate(machines=1, distributed_type="FSDP"),
        "run.yaml": AXOLOTL.partition("fsdp:")[0],
    }

    assert "FSDP" in only(advice_of(tmp_path, files)).text


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("bf16: true\nfp16: true\n", "fp16 and bf16 are both on"),
        ("deepspeed: ds_z2.json\nfsdp: full_shard\n", "deepspeed and fsdp are both configured"),
    ],
)
def test_what_a_trainer_refuses_is_named(tmp_path: Path, lines: str, words: str) -> None:
    text = "base_model: x\nlearning_rate: 1e-4\nmicro_batch_size: 1\n" + lines

    assert words in only(advice_of(tmp_path, {"run.yaml": text})).text


def test_contradictions_come_first_and_there_are_never_too_many(tmp_path: Path) -> None:
    files = {f"node{rank}/acc.yaml": accelerate(0, port=rank + 1, machines=40, ip="127.0.0.1") for rank in range(30)}

    found = advice_of(tmp_path, {**files, "run.yaml": LLAMA_FACTORY})

    assert len(found) == 20
    assert all(advice.supports for advice in found)
    assert max(len(advice.text) for advice in found) < 2500
