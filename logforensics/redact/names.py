"""Finds the names of hosts and users in log text, by where they stand.

A *strict* place (NCCL's prefix, ``MASTER_ADDR=``, ``/home/``) gives a name whatever it looks like; a *loose* one
("on node ...", "peer: ...") only when it looks like a machine's: with a digit or a hyphen. What is found once is
then known as a word everywhere, unless it is a word that logs are full of (``is_telling``).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files

from logforensics.model import ACTIVITIES, CATEGORIES, FATES, FIELDS, KINDS, PHASES, ROLES, STREAMS

# kind is "host", "user" or "hosts" (a scheduler's list such as "gpu-[01-04,07]")
Named = tuple[int, int, str, str]

_H = r"(?P<host>[A-Za-z0-9](?:[\w.-]{0,251}[A-Za-z0-9])?)"
_U = r"(?P<user>[A-Za-z0-9_](?:[\w.-]{0,62}\w)?)"
_LIST = r"(?P<hosts>[A-Za-z0-9](?:[\w.-]|(?::\d{1,3})?,(?=[A-Za-z0-9])|\[[\d,-]+\])*(?::\d{1,3}\b)?)"
_IS = r"(?:\\?[\"']?\]?\s{0,8}[=:]\s{0,8}\\?[\"']?|[\"']\s*,\s*[\"'])"

_ENVIRONMENT = (
    "MASTER_ADDR|MASTER_HOST|HOSTNAME|HOST|NODE_NAME|POD_NAME|MY_POD_NAME|MY_NODE_NAME|K8S_NODE_NAME|HOST_NAME"
    "|SLURMD_NODENAME|SLURM_SUBMIT_HOST|SLURM_LAUNCH_NODE_IPADDR|SLURM_TOPOLOGY_ADDR|SLURM_STEP_LAUNCHER_HOST"
    "|PBS_O_HOST|LSB_SUB_HOST|COBALT_HEAD|RDZV_ENDPOINT|PET_RDZV_ENDPOINT|PET_MASTER_ADDR|RAY_ADDRESS|RAY_HEAD_IP"
    "|COMPUTERNAME|master_addr|main_process_ip|rdzv_endpoint|BatchHost|NodeName|AllocNode:Sid|node_ip"
)
_LIST_KEYS = (
    "SLURM_(?:JOB_|STEP_)?NODELIST|(?:Req|Exc|Batch)?NodeList|nodelist|LSB_HOSTS|LSB_MCPU_HOSTS|--nodes?|Nodes?"
)
_USER_KEYS = (
    "USER|USERNAME|LOGNAME|SUDO_USER|SLURM_JOB_USER|NB_USER|PBS_O_LOGNAME|SGE_O_LOGNAME|REMOTE_USER|JUPYTERHUB_USER"
    "|WANDB_USERNAME|WANDB_ENTITY|HADOOP_USER_NAME|GITHUB_ACTOR|GITLAB_USER_LOGIN|HF_USERNAME"
)
_STRICT = [
    re.compile(pattern, re.M)
    for pattern in (
        rf"(?<![\w.-]){_H}:\d+:\d+ \[",  # NCCL and its plugins
        rf"\bhost[ \t]*:[ \t]+{_H}[ \t]*$",  # torchrun's summary
        rf"(?<![A-Za-z0-9])(?:{_ENVIRONMENT}){_IS}{_H}",
        rf"--(?:master[_-]addr|rdzv[_-]endpoint|main_process_ip|hostname|host)(?:[= ]|[\"'],\s*[\"']){_H}"
        r"(?=[:\"']|\s+-|\s*$)",
        rf"\b(?!file\b|s3\b|gs\b|hf\b|abfss?\b|hdfs\b|dbfs\b|wasbs?\b)[a-z][a-z0-9+.-]{{1,14}}://(?:[^\s/@\"']+@)?{_H}",
        rf"\[(?!(?:rank|default)\d+\]){_H}\]:\d{{2,5}}\b",  # torch's sockets
        rf"\b(?:addresses of|connect(?:ed|ing)? to|listening on) \[?\(?{_H}(?:, |\]?:)\d{{2,5}}\b",
        rf"\bnode '{_H}_\d+_\d+'",  # torch's rendezvous
        rf"\bhost(?:name)? [\"']?{_H}[\"']?(?: port \d|:\d\d)",
        rf"\bresolve (?:host(?:name)?|host name) [\"']?{_H}[\"']?(?=:|\s*$)",
        rf"\bhost(?:name)?=[\"']{_H}[\"']",
        rf"\bgit@{_H}[:/]",
        rf"(?i:\b(?:server|host|data source))=(?:tcp:)?{_H}[,;]",  # connection strings
        rf"[\"']host(?:name)?\\?[\"']: ?\\?[\"']{_H}",
        rf"\b(?:Failed to resolve|NameResolutionError.{{0,80}}resolve) [\"']{_H}",
        rf"\bsrun: error: {_H}: task",
        rf"\bslurmstepd(?:-|: error: \*{{3}} \S+ \S+ ON ){_H}",
        rf"^[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d {_H} [\w.()/-]+(?:\[\d+\])?: ",  # syslog
        rf"^\d{{4}}-\d\d-\d\dT\S+ {_H} [\w.()/-]+(?:\[\d+\])?: ",
        rf"\b(?:Local|Remote|Target) (?:[Hh]ost|node)(?:name)?:\s+{_H}",
        rf"\bwith PID \d+ on node {_H}",
        rf"^{_H}\s+slots=\d",
    )
]
_WORLD = re.compile(r"WORLD INFO|global_rank_mapping|active_resources|resource_pool|world_info")
_WORLD_HOST = re.compile(rf"[\"']{_H}\\?[\"']: (?=\[|\d)")
_LOOSE = [
    re.compile(pattern, re.M)
    for pattern in (
        rf"\b(?i:(?:on|from|of) (?:node|host|machine)|host_?name|nodename) [\"']?{_H}",
        rf"\b(?i:node|host|host_?name|nodename|node_name|server|peer|machine|addr|address|remote|endpoint|hosts)"
        rf"\\?[\"']?\s{{0,8}}[=:]\s{{0,8}}\[?\\?[\"']?{_H}",
        rf"^\[{_H}:\d+\] ",  # Open MPI
        rf"\bpods?(?:/| \"){_H}",
        rf"\bLinux {_H} \d+\.\d+\.\d+",
        rf"\({_H}, \d{{4,5}}\)",
        rf"(?<![\w.-]){_H}:(?:29[3-9]\d\d|6379|8265|2222)\b",
        r"(?<![\w./@-])(?P<host>(?:ip|ec2)-\d+-\d+-\d+-\d+(?:\.[\w-]+)*)",  # Amazon's
        r"(?<![\w./@-])(?P<host>(?=[\w.]*[\d-])[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*\.(?:internal|local|lan"
        r"|localdomain|intra|intranet|corp|private|hpc|svc|cluster|example|test|home\.arpa))(?![\w(-]|\.[A-Za-z_])",
        r"(?<![\w./@-])(?P<host>(?=[\w.]*[\d-])[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)+\.(?:edu|gov|mil|com|net|org))"
        r"(?![\w(-]|\.[A-Za-z_])",
    )
]
_LISTS = [
    re.compile(pattern)
    for pattern in (
        rf"(?<![A-Za-z0-9])(?:{_LIST_KEYS}){_IS}{_LIST}",
        rf"(?:--nodelist|-w|--host|-H)[= ]{_LIST}",
        rf"\b[Nn]odes? (?:failure on )?{_LIST}",
        r"(?<![\w.-])(?P<hosts>[A-Za-z][\w.]*(?:-[\w.]*)*-\[\d[\d,-]*\][\w.-]*)",
    )
]
_USERS = [
    re.compile(pattern)
    for pattern in (
        # /home/alice, /Users/alice, /home/users/alice, C:\Users\alice, %2Fhome%2Falice
        rf"(?:/|\\{{1,4}}|%2[Ff])(?:home\d*|homes|Users|users)(?:/|\\{{1,4}}|%2[Ff])"
        rf"(?:(?:users|staff|students?|people|[a-z])(?:/|%2[Ff]))?{_U}",
        rf"(?<![A-Za-z0-9])(?:{_USER_KEYS}){_IS}{_U}",
        rf"torchinductor_{_U}",
        rf"\b(?:user|username|user_name|owner)[\"']?\s*[:=]\s*[\"']{_U}[\"']",
        rf"(?m)^[ \t]*[Uu]ser(?:name)?[ \t]*[:=][ \t]*{_U}[ \t]*$",
        rf"--user(?:=|name[= ]){_U}",
        rf"\b(?:password|failed|denied|opened|closed) for user [\"']?{_U}",
        rf"\be?uid=\d+\({_U}\)",
        rf"\bUserId={_U}\(",
        rf"\blogged in as: {_U}",
        rf"\bwandb\.ai/(?!site/|home/|docs/){_U}/",
        rf"\b(?:ssh|sftp|scp|rsync|git\+ssh)://{_U}@",
        rf"\b(?:sudo|ssh) (?:-\S+ )*-[ul] {_U}",
        rf"\bsudo: +{_U} :",
        rf"\bAccepted \w+ for {_U} from",
    )
]
# Below a scratch folder people and projects stand side by side: an alias there, but no word to know elsewhere.
_PERHAPS_USERS = re.compile(rf"/(?:scratch\d*|[gl]scratch|fastscratch|fsx)/{_U}(?=/|$|[\"'\s:])")
_AT_HOST = re.compile(rf"(?<![\w.@/-]){_U}@{_H}")
_MAIL = re.compile(
    r"(?<![\w.+%-])[A-Za-z0-9][\w.+%-]{0,63}@[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,24}\b(?!\.\d)"
)

_WORDS: dict[str, list[str]] = tomllib.loads((files("logforensics") / "redact" / "words.toml").read_text("utf-8"))
_EVERYBODY, _EVERYWHERE = set(_WORDS["everybody"]), set(_WORDS["everywhere"])
_PUBLIC_SUFFIX = re.compile(r"(?:^|\.)(?:" + "|".join(map(re.escape, _WORDS["public_sites"])) + ")$", re.I)
_LAST_LABELS = re.compile(
    r"\.(?:[a-z]{2}|com|net|org|edu|gov|mil|int|info|io|ai|dev|cloud|internal|local|lan|localdomain|intra|intranet"
    r"|corp|private|hpc|svc|cluster|example|test|arpa|site|tech|science)$",
    re.I,
)
_COUNTED = re.compile(
    r"(?:(?:local|global|group|node)?[_-]?ranks?|gpu|cuda|cpu|device|default|steps?|epoch|layers?|task|thread|attempt"
    r"|stage|shard|iter|iteration|batch|checkpoint|ckpt|port|pid|tid|process|group|pg|seq|version|v|run|job|mlx\d_?|ib|eth)"
    r"[_:-]?\d{0,1}$"
    r"|(?:(?:local|global|group|node)?[_-]?ranks?|default|steps?|epoch|layers?|attempt|checkpoint|ckpt)[_:-]?\d+$",
    re.I,
)
_FILE = re.compile(
    r"\.(?:py|log|c|cc|cpp|cu|cuh|h|hpp|txt|jsonl?|sh|ya?ml|toml|out|err|pth?|bin|safetensors|so|gz|zst|tar|zip|csv)$"
)
_ALIAS = re.compile(r"(?:host|user|ip|mail|secret)-\d+")
_OWN = (*KINDS, *ROLES, *CATEGORIES, *PHASES, *FATES, *STREAMS, *ACTIVITIES, *FIELDS)
_COMMON = (
    {word for name in _OWN for word in (name, *name.split("_"))} | _EVERYBODY | _EVERYWHERE | set(_WORDS["common"])
)


def host_names(text: str) -> Iterator[Named]:
    """Yield (start, end, "host" or "hosts", name) for every host name in ``text``; spans may overlap."""
    for pattern in _LISTS:
        for match in pattern.finditer(text):
            if "[" in match["hosts"] or "," in match["hosts"]:
                yield *match.span("hosts"), "hosts", match["hosts"]
    for pattern in _STRICT:
        for match in pattern.finditer(text):
            if match["host"] and is_host(match["host"]):
                yield *match.span("host"), "host", match["host"]
    if _WORLD.search(text):
        for match in _WORLD_HOST.finditer(text):
            if is_host(match["host"]):
                yield *match.span("host"), "host", match["host"]
    for pattern in _LOOSE:
        for match in pattern.finditer(text):
            if _looks_like_host(match["host"]):
                yield *match.span("host"), "host", match["host"]


def user_names(text: str) -> Iterator[Named]:
    """Yield (start, end, "user" or "user?", name) for every user name; "user?" is no word to know elsewhere."""
    for pattern in _USERS:
        for match in pattern.finditer(text):
            if match["user"] and is_user(match["user"]):
                yield *match.span("user"), "user", match["user"]
    for match in _PERHAPS_USERS.finditer(text):
        if is_user(match["user"]) and match["user"] not in _COMMON:
            yield *match.span("user"), "user?", match["user"]
    if "@" in text:
        for match in _AT_HOST.finditer(text):
            if is_user(match["user"]) and _looks_like_host(match["host"]) and not _MAIL.match(text, match.start()):
                yield *match.span("user"), "user", match["user"]
                yield *match.span("host"), "host", match["host"]


def mail_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where e-mail addresses stand; ``git@`` a public site is none."""
    if "@" in text:
        for match in _MAIL.finditer(text):
            if not match.group().startswith("git@"):
                yield match.span()


def is_host(name: str) -> bool:
    """Whether a name found where hosts stand can be one that tells something."""
    low = name.lower()
    if low in _EVERYWHERE or not any(map(str.isalpha, name)) or _ALIAS.fullmatch(name) or _PUBLIC_SUFFIX.search(name):
        return False
    label, _, rest = name.partition(".")
    # "args.master_addr" and "self.host" are code
    if _FILE.search(name):
        return False
    return not rest or _numbered(label) or (_LAST_LABELS.search(name) is not None and "_" not in name)


def _looks_like_host(name: str) -> bool:
    label = name.partition(".")[0]
    return is_host(name) and _numbered(label) and not _COUNTED.match(label) and not ("_" in name and "." in name)


def _numbered(label: str) -> bool:
    return "-" in label or any(map(str.isdigit, label))


def is_user(name: str) -> bool:
    """Whether a name found where users stand is a person's account."""
    if name.lower() in _EVERYBODY or _ALIAS.fullmatch(name) or _FILE.search(name):
        return False
    return any(map(str.isalpha, name))


def is_telling(name: str) -> bool:
    """Whether a name is rare enough to be replaced wherever it stands as a word."""
    if len(name) < 3 or name.lower() in _COMMON or _COUNTED.match(name):
        return False
    return any(map(str.isalpha, name))


def expanded(expression: str, most: int = 512) -> list[str]:
    """Return the hosts of a scheduler's list: "gpu-[01-03,07],login" gives five names, at most ``most``."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\]?)+", expression):
        names.extend(_ranges(part, most - len(names)))
    return names[:most]


def _ranges(part: str, most: int) -> list[str]:
    head, opened, rest = part.partition("[")
    if not opened:
        return [part]
    inside, _, tail = rest.partition("]")
    names: list[str] = []
    for piece in inside.split(","):
        low, _, high = piece.partition("-")
        if not low.isdigit() or (high and not high.isdigit()):
            continue
        last = min(int(high or low), int(low) + max(most, 1) - 1)
        numbers = [f"{number:0{len(low)}d}" for number in range(int(low), last + 1)]
        names.extend(head + number + end for number in numbers for end in _ranges(tail, most))
    return names
