"""Says what a file is by its first bytes; its name only breaks ties."""

from __future__ import annotations

import regex

# So much of a file is looked at.
SNIFF_BYTES = 8192

_TEXT_BUT_NO_LOG = (
    ".toml", ".yaml", ".yml", ".ini", ".cfg", ".py", ".sh", ".html", ".css", ".js", ".md", ".csv", ".ipynb",
)  # fmt: skip
# Never opened: run folders hold many of these, and large ones.
_BINARY_NAMES = (
    ".pt", ".pth", ".ckpt", ".safetensors", ".onnx", ".npy", ".npz", ".parquet", ".arrow", ".h5", ".tfrecord", ".so",
    ".pyc", ".whl", ".jar", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".mp4", ".wav", ".flac", ".pdf",
)  # fmt: skip
_BINARY_MAGIC = (
    b"\x7fELF", b"\x89PNG", b"\x89HDF", b"%PDF", b"\xff\xd8\xff", b"GIF8", b"\xca\xfe\xba\xbe", b"PK\x05\x06",
    b"PAR1", b"ARROW1", b"SQLite format 3", b"\x93NUMPY",
)  # fmt: skip
# torch.save, numpy, office files and Java archives are zip files too
_DATA_MEMBERS = regex.compile(
    rb"(?:[^/]*/(?:data\.pkl|version|\.format_version)|[^/]*\.npy|\[Content_Types\]\.xml|META-INF/.*|mimetype)$"
)
_PICKLE = regex.compile(rb"\x80[\x02-\x05]")
# torch's flight recorder writes <prefix><rank>; the prefix is the user's, so what is inside tells as well.
_RECORDER_NAME = regex.compile(r"(?:nccl|comm_lib|fr|gloo)_trace|trace_rank|flight_recorder")
_RECORDED = regex.compile(rb"\b(?:profiling_name|pg_status|collective_seq_id)\b")
_DEEPSPEED = regex.compile(rb'\A\s*\{.*"(?:zero_optimization|train_micro_batch_size_per_gpu)"\s*:', regex.DOTALL)
_ACCELERATE = regex.compile(rb"^(?:compute_environment|distributed_type):\s", regex.MULTILINE)
_YAML_LINE = regex.compile(rb"\s*(?:#.*|---|- .*|[\w.-]+:(?:\s.*)?)?")
_NUL_RUNS = regex.compile(rb"\0+")
# Control characters that no log has; escapes, bells, backspaces, tabs and form feeds it may have.
_CONTROL = bytes({*range(1, 7), *range(14, 27), *range(28, 32), 127})


def kind_of(name: str, head: bytes, *, explicit: bool) -> str:
    """Return "log", "error_file", "config", "flight_recorder" or "binary" of an unpacked file.

    ``name`` is that of the file itself, ``head`` its first bytes. What a user named himself (``explicit``) is read as
    a log even if its name says that it is something else.
    """
    last = regex.split(r"[/!]", name)[-1].lower()
    if _PICKLE.match(head):
        return "flight_recorder" if _RECORDER_NAME.search(last) or _RECORDED.search(head) else "binary"
    if is_binary(head):
        return "binary"
    if last.endswith(".json") and (last == "error.json" or _is_error_file(head)):
        return "error_file"
    if head.lstrip()[:1] in {b"{", b"["} and (_RECORDED.search(head) or _RECORDER_NAME.search(last)):
        return "flight_recorder"
    if _is_config(last, head):
        return "config"
    if not explicit and last.endswith((*_TEXT_BUT_NO_LOG, ".json")):
        return "config"
    return "log"


def binary_by_name(name: str) -> bool:
    """Return whether a file need not be opened to know that it is no log."""
    return name.lower().endswith(_BINARY_NAMES)


def is_binary(head: bytes) -> bool:
    """Return whether bytes are no text in any encoding that logs are written in.

    A log may hold NULs (a rotated file begins with a long run of them), invalid UTF-8 and escapes; what it does not
    hold is many NULs apart from each other, or many other control characters.
    """
    if head.startswith(_BINARY_MAGIC):
        return True
    text = head.replace(b"\0", b"")
    if not text:
        return bool(head)
    controls = len(text) - len(text.translate(None, _CONTROL))
    return len(_NUL_RUNS.findall(head)) * 20 > len(text) + 20 or controls * 20 > len(text)


def utf16_of(head: bytes) -> str | None:
    """Return the codec of UTF-16 text (Windows redirection writes it), with or without its mark; else None."""
    if len(head) < 8:
        return None
    # every letter of ASCII has a NUL beside it; without its mark a text must be nearly all ASCII to be known
    odd, even = head[1::2].count(0) / len(head[1::2]), head[::2].count(0) / len(head[::2])
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16" if max(odd, even) > 0.05 else None
    if odd > 0.6 and even < 0.1:
        return "utf-16-le"
    return "utf-16-be" if even > 0.6 and odd < 0.1 else None


def is_data_zip(head: bytes) -> bool:
    """Return whether a zip file is a checkpoint, an array or a document: nothing that holds logs."""
    length = int.from_bytes(head[26:28], "little")
    return bool(_DATA_MEMBERS.match(head[30 : 30 + length]))


def _is_config(last: str, head: bytes) -> bool:
    """Return whether a file is a configuration whatever its name: a log that only quotes one is none."""
    if last.endswith(".json"):
        return bool(_DEEPSPEED.match(head))
    if not _ACCELERATE.search(head) or len(head) >= SNIFF_BYTES:
        return False
    return all(_YAML_LINE.fullmatch(line) for line in head.splitlines())


def _is_error_file(head: bytes) -> bool:
    return head.lstrip().startswith(b'{"message"') and b"py_callstack" in head
