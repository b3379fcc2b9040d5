"""Faults of the launch: addresses, ports, nodes. Injected by how the launchers are started."""

from __future__ import annotations

from logforensics.harness.truths import Fault, missing_node, nobody, port_in_use

_AGENTS = ("torchrun", "accelerate")

LAUNCH_FAULTS = (
    Fault("port_in_use", "another process listens on the master port", port_in_use, strikes_rank=False),
    Fault(
        "wrong_address",
        "the rendezvous address belongs to no machine",
        nobody("rendezvous", "192.0.2.10", "missing_node", "network_interface", phase="rendezvous"),
        launchers=_AGENTS,
        because="the others have no rendezvous",
        nnodes=2,
        strikes_rank=False,
    ),
    Fault(
        "bad_host",
        "the rendezvous host name does not resolve",
        nobody(
            "rendezvous",
            "cannot be retrieved (gai error",
            "network_interface",
            "config_error",
            phase="rendezvous",
        ),
        launchers=_AGENTS,
        because="the others have no rendezvous",
        nnodes=2,
        strikes_rank=False,
    ),
    Fault(
        "missing_node",
        "the last node's launcher is never started",
        missing_node,
        launchers=_AGENTS,
        because="the others wait without a word",
        nnodes=2,
        strikes_rank=False,
    ),
    Fault(
        "duplicate_machine_rank",
        "two nodes are both started as machine 0",
        port_in_use,
        launchers=_AGENTS,
        because="the others have no machine rank of this kind",
        nnodes=2,
        strikes_rank=False,
    ),
)
