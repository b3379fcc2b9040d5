"""Finds IP addresses in log text, and leaves alone what only looks like one: versions, times, C++ names."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator

_V4 = re.compile(r"(?<![A-Za-z0-9.])(?:\d{1,3}\.){3}\d{1,3}(?![A-Za-z0-9]|\.\d)")
# NCCL writes "remoteGids" and the address in one word
_V6 = re.compile(
    r"(?:(?<![\w:.])|(?<=Gids))(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{3,}(?:(?:\.\d{1,3}){3})?(?![\w:])"
)
# what only an address has behind it: a port, NCCL's <port>, a prefix length
_SURELY_ADDRESS = re.compile(r"\]?:\d{2,5}\b|<\d+>|/\d{1,2}(?![\w.])|%\w")
_SURELY_VERSION = re.compile(
    r"[+~]|-cp\d|-\d+[+~.]|\.(?:post|dev|rc|whl|tar|so|zip|egg|dist-info)|-(?:py|linux|manylinux)"
)
_VERSION_BEFORE = re.compile(
    r"(?:[=><~!]=\s*|\bso\.|\b(?:version|ver|release|revision|build|compiled|torch\w*|pytorch|cuda\w*|cudnn\w*|nccl\w*"
    r"|rccl|rocm\w*|hip|nvidia[\w-]*|driver|runtime|toolkit|cublas\w*|cufft\w*|cusparse\w*|curand\w*|cusolver\w*"
    r"|libfabric|rdma-core|\w*ofed|ucx|hpcx|openmpi|mpi|python|deepspeed|accelerate|transformers|flash[_-]attn|xformers"
    r"|triton|apex|megatron\w*|kernel|linux|gcc|glibc|firmware|fw|vbios|numpy|efa|gdrcopy|tensorrt|onnx\w*|slurm)"
    r"(?:[-_]cu\d+)?[\"']?\s*[:=(@/,| \t-]{0,12}[\"']?v?)\Z",
    re.I,
)
_NAME_BEFORE = re.compile(r"[A-Za-z][\w.+]*-\Z")
# Private ranges that no version number reaches.
_SURELY_PRIVATE = re.compile(r"192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.")
# IPv6 that can name a machine: global, unique local, link local, and IPv4 in other clothes. Any other prefix is
# not in use, while C++ is full of "c10d::add".
_V6_IN_USE = tuple(map(ipaddress.IPv6Network, ("2000::/3", "fc00::/7", "fe80::/10", "64:ff9b::/96", "::ffff:0:0/96")))
# The cloud's metadata service has this address everywhere.
_PUBLIC_CONSTANTS = {"169.254.169.254"}


def address_spans(text: str, versions: Collection[str] = ()) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, address) for every address in ``text`` that tells of a machine.

    ``versions`` are dotted numbers known to be none. Loopback, unspecified and multicast addresses and netmasks
    name nobody and are left out.
    """
    for match in _V4.finditer(text):
        if (key := address_key(match.group())) and not _is_version(match, versions):
            yield *match.span(), key
    for match in _V6.finditer(text):
        if key := address_key(match.group()):
            yield *match.span(), key


def address_key(text: str) -> str | None:
    """Return the address in its one spelling; None when ``text`` is none, or one that names no machine."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if not any(address in network for network in _V6_IN_USE):
            return None
        address = address.ipv4_mapped or address
    if address.is_loopback or address.is_unspecified or address.is_multicast or str(address) in _PUBLIC_CONSTANTS:
        return None
    return None if str(address).startswith(("255.", "0.")) else str(address)


def _is_version(match: re.Match[str], versions: Collection[str]) -> bool:
    text, start, end = match.string, match.start(), match.end()
    if _SURELY_ADDRESS.match(text, end) or _SURELY_PRIVATE.match(text, start):
        return False
    if match.group() in versions or _SURELY_VERSION.match(text, end):
        return True
    if _VERSION_BEFORE.search(text, max(0, start - 80), start):
        return True
    # "name-1.2.3.4" is a package, "rank0-10.1.2.3" a file of a machine
    return (
        bool(_NAME_BEFORE.search(text, max(0, start - 60), start))
        and not ipaddress.ip_address(match.group()).is_private
    )
