"""The remedies: one for every cause, facts by their right names, safe to copy, correct on what people get wrong."""

from __future__ import annotations

import re
import tomllib

import pytest

from logforensics.model import CATEGORIES, FIELDS, PHASES
from logforensics.resources import data_text

REMEDIES = tomllib.loads(data_text("reports", "remedies.toml"))["remedy"]
PLACEHOLDER = re.compile(r"\{([^}|]*)(?:\|([^}]*))?\}")


def texts(remedy) -> list[str]:
    return [remedy["title"], *remedy["steps"], *remedy.get("commands", [])]


def all_about(*categories: str) -> str:
    return "\n".join(t for r in REMEDIES if not categories or set(categories) & set(r["categories"]) for t in texts(r))


@pytest.mark.parametrize("category", sorted(set(CATEGORIES) - {"no_failure"}))
def test_every_category_has_a_remedy_in_every_phase(category):
    assert any(category in remedy["categories"] and not remedy.get("phases") for remedy in REMEDIES)


@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize("phase", PHASES)
def test_nobody_gets_more_advice_than_can_be_read(category, phase):
    found = [r for r in REMEDIES if category in r["categories"] and phase in r.get("phases", PHASES)]

    assert len(found) <= 4


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy["id"])
def test_a_remedy_is_well_formed(remedy):
    assert set(remedy) <= {"id", "title", "categories", "phases", "steps", "commands"}
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", remedy["id"])
    assert set(remedy["categories"]) <= set(CATEGORIES) - {"no_failure"}
    assert set(remedy.get("phases", [])) <= set(PHASES)
    assert 3 <= len(remedy["steps"]) <= 6
    assert all(step.endswith((".", "?", ".)")) for step in remedy["steps"])
    assert not remedy["title"].endswith(".")


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy["id"])
def test_placeholders_name_fields_and_say_what_else(remedy):
    for text in texts(remedy):
        assert text.count("{") == text.count("}") == len(PLACEHOLDER.findall(text)), text
        for name, otherwise in PLACEHOLDER.findall(text):
            assert name in FIELDS or name == "rank", text
            assert otherwise, text


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy["id"])
def test_no_text_from_a_log_gets_into_a_command(remedy):
    for command in remedy.get("commands", []):
        assert "\n" not in command and "#" not in command
        for name, _ in PLACEHOLDER.findall(command):
            assert FIELDS[name] in (int, float), command


def test_ids_are_unique():
    ids = [remedy["id"] for remedy in REMEDIES]

    assert sorted(set(ids)) == sorted(ids)


@pytest.mark.parametrize(
    ("categories", "pieces"),
    [
        (
            ("unknown_timeout",),
            ["seldom the network", "first exception", "one GPU, two GPUs, one node, many nodes"],
        ),
        (("cuda_oom",), ["batch size", "accumulation", "ZeRO-3", "offload", "fragmented", "sequence length"]),
        (
            ("cuda_oom",),
            ["other processes", "expandable_segments", "gradient checkpointing", "FULL_SHARD", "QLoRA"],
        ),
        (("uneven_inputs",), ["DistributedSampler", "drop_last", "Join", "Filter the dataset"]),
        (
            ("rendezvous",),
            ["on every node", "num_machines", "num_processes", "machine_rank", "main_process_ip"],
        ),
        (("missing_node",), ["main_process_port", "same_network", "hostname -I", "firewall"]),
        (
            ("network_interface",),
            ["NCCL_SOCKET_IFNAME", "docker0", "firewall", "MTU", "ip route", "nvidia-smi topo -m"],
        ),
        (
            ("unknown_exit",),
            ["NCCL_DEBUG=INFO", "TORCH_DISTRIBUTED_DEBUG=DETAIL", "TORCH_FR_BUFFER_SIZE", "unset"],
        ),
        (
            ("unknown_exit",),
            ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR"],
        ),
        (("slow_rank",), ["timeout=timedelta", "NCCL_TIMEOUT variable alone does nothing", "--ddp_timeout"]),
        (("dataloader",), ["/dev/shm", "--shm-size", "num_workers=0"]),
        (("zero_mismatch",), ["set_z3_leaf_modules", "synced_gpus=True"]),
    ],
)
def test_they_answer_what_people_ask(categories, pieces):
    text = all_about(*categories)

    for piece in pieces:
        assert piece in text, piece


def test_no_command_uses_an_old_or_useless_variable():
    commands = "\n".join(c for remedy in REMEDIES for c in remedy.get("commands", []))

    for name in (
        "NCCL_TIMEOUT",
        "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
        "NCCL_BLOCKING_WAIT",
    ):
        assert name not in commands
    assert not re.search(r"https?://|pip install|docker pull", commands)


def test_stuck_at_the_first_collective_leads_to_the_transport():
    stuck = [r for r in REMEDIES if "unknown_timeout" in r["categories"] and "first_collective" in r.get("phases", [])]

    assert [remedy["id"] for remedy in stuck] == ["topology"]
