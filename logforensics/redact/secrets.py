"""Finds secrets in log text: keys, tokens, passwords, by their own shape or by what stands before them.

The shapes of the providers' tokens come from detect-secrets, whose detectors are kept up to date with them; its
keyword and entropy detectors are left out, because training logs are full of "token" and of long random names.
What is here are the shapes of training runs (hub, experiment tracker, webhook) and assignments: ``HF_TOKEN=...``,
``"api_key": "..."``, ``--password ...``. Loading detect-secrets takes a fifth of a second, so it waits until asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

Span = tuple[int, int]

# Detectors of detect-secrets that say too much or too little for logs, and what stands in for them.
_UNUSED_DETECTORS = {
    "ArtifactoryDetector",  # takes any word that starts with APA..APF
    "BasicAuthDetector",  # misses a user without a password: _USERINFO
    "IPPublicDetector",  # addresses become aliases of their own
    "JwtTokenDetector",  # leaves the signature behind: _TOKENS
    "OpenAIDetector",  # takes quadratic time, and today's keys have another shape: _TOKENS
    "NpmDetector",  # takes the rest of the line: _ASSIGNED
    "PrivateKeyDetector",  # finds the heading, not the key: _PRIVATE_KEY
}

_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    # hub and tracker tokens have no second underscore, unlike hf_raise_for_status
    r"(?:hf|api_org|gh[pousr]|npm|gsk|r8|rpa|dop_v1|dckr_pat|shpat|lin_api|sntr[ysu]|glsa)_[A-Za-z0-9]{16,}"
    r"|(?:github_pat|wandb_v1)_[A-Za-z0-9_]{16,}"
    r"|(?:nvapi|glpat|tskey|xapp|pypi|AGE-SECRET-KEY)-[A-Za-z0-9_-]{20,}"
    r"|sk-(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{16,}"
    r"|xox[a-z]-[A-Za-z0-9-]{10,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![A-Za-z0-9])"
    r"|AIza[A-Za-z0-9_-]{30,}"
    r"|ya29\.[A-Za-z0-9_-]{16,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|eyJ[A-Za-z0-9_=-]{8,}\.eyJ[A-Za-z0-9_=-]{8,}(?:\.[A-Za-z0-9_.+/=-]*)?"
    r")"
)
_WEBHOOKS = re.compile(
    r"(?:hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/(?:v\d+/)?webhooks/"
    r"|webhook\.office\.com/|api\.telegram\.org/bot|open-apis/bot/v2/hook/|logic\.azure\.com[:/])"
    r"([^\s\"'<>\\)]+)"
)
# a key may be cut off by the end of the text; with real or written-out line ends
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)", re.S
)
_KEY_LINE = re.compile(r"(?:\\[nrt])?([^\r\n\\]{8,})")
_PUTTY_KEY = re.compile(r"PuTTY-User-Key-File-\d:(.*)", re.S)
_PUBLIC_KEY = re.compile(r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\S+) +(AAAA[A-Za-z0-9+/=]{30,})")
# A line of a key whose heading is elsewhere: nothing but base64, of all its kinds of characters.
_BASE64_LINE = re.compile(
    r"(?m)^(?:\[[\w:]{1,20}\]:?\s*)?((?=[A-Za-z0-9+/]*[A-Z])(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*\d)"
    r"[A-Za-z0-9+/]{40,}={0,2})\s*$"
)
_USERINFO = re.compile(r"\b([a-z][a-z0-9+.-]{1,20})://([^\s/\"'<>|]+)@", re.I)
_AUTHORIZATION = re.compile(
    r"\b(?:proxy-)?authorization\\?[\"']?\s*[:=,]\s*b?\\?[\"']?(?:(?:bearer|basic|token|digest|apikey|negotiate)\s+)?"
    r"([^\s\"'\\,;)}\]]+)",
    re.I,
)
_BEARER = re.compile(r"\b(?:bearer|basic)\s+(?=[^\s\"']*\d)([A-Za-z0-9._~+/=-]{12,})", re.I)
_COOKIE = re.compile(r"\b(?:set-)?cookie\\?[\"']?\s*:\s*[\"']?([^\r\n\"']{6,})", re.I)
_IN_QUERY = re.compile(
    r"[?&](?:sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token)|(?:access_|id_)?token|key|code"
    r"|awsaccesskeyid|googleaccessid)=([^&\s\"'<>\\)]+)",
    re.I,
)
# deepspeed --world_info is the list of hosts in base64; `wandb login KEY` takes the key as it is
_BARE_ARGUMENT = re.compile(
    r"(?:--world[_-]info[= ]|\bwandb login (?:--\S+ )*)[\"']?([A-Za-z0-9+/=_-]{16,})"
    r"|\b(?:sshpass|docker login|podman login|mysql|mysqldump)\b[^\n|;]{0,120}? -p ?[\"']?([^\s\"']+)"
    r"|\bcurl\b[^\n|;]{0,120}? -u ?[\"']?([^\s\"']+)"
    r"|\bmachine \S+ login \S+ password (\S+)"  # .netrc
)
_ASSIGNED = re.compile(
    r"(?P<word>key|secret|token|passw(?:or)?d|passphrase|passcode|pwd|pass|credentials?|auth)(?P<more>[_-]?(?:id|value))?"
    r"(?P<between>\\*[\"']?\s{0,12}(?:=>|:=|[=:])\s{0,12}|[\"'],\s*|[\"']\]\s*=\s*|\s+)"
    r"(?:(?:b|r|SecretStr\()?(?P<quote>\\*[\"'])(?P<quoted>(?:(?!(?P=quote)).){1,400})|(?P<bare>[^\s\"',;)}\]&]+))",
    re.I,
)
_NAME_BEFORE = re.compile(r"[\w.-]*\Z")
_SURE_KEY = re.compile(
    r"(?:api|access|secret|private|account|auth|encryption|signing|master|service|shared|license|ssh|wandb|storage"
    r"|subscription|deploy)_?key(?:_?(?:id|value))?$"
)
_SURE_TOKEN = re.compile(
    r"(?:hf|hub|hugging_?face\w*|auth|access|refresh|bearer|session|id|api|bot|git\w*|slack|wandb|user|identity"
    r"|security|oauth\w*|registry|deploy|ngc|personal\w*|replicate|service\w*|npm|pypi)_?token(?:_?(?:id|value))?$"
)
# Tokens of a text, not of an account.
_TEXT_TOKEN = re.compile(
    r"(?:^|[_.-])(?:bos|eos|pad|unk|sep|cls|mask|special|image|video|audio|vision|next|first|last|max|min|num|per|prev"
    r"|start|end|stop|begin|prompt|add|decoder|boi|eoi|unexpected|invalid)_?(?:\w+_)?token"
)
_NO_VALUE = re.compile(
    r"(?:none|null|nil|true|false|yes|no|redacted|required|missing|not|is|was|<[^>]*>?|\$.*|\*+|\.+|x+|%\w.*|\{.*"
    r"|\[?secret-\d+\]?)[.,]?",
    re.I,
)
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[(\[]|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$")


def secret_spans(text: str) -> Iterator[Span]:
    """Yield where secrets stand in ``text``, the surest first; spans may overlap."""
    for match in _PRIVATE_KEY.finditer(text):
        yield from _lines_of(text, *match.span(1))
    if (putty := _PUTTY_KEY.search(text)) is not None:
        yield from _lines_of(text, *putty.span(1))
    for match in _USERINFO.finditer(text):
        # ssh://alice@host is a user; git@ is everybody's
        if ":" in match[2] or match[1].lower() not in {"ssh", "sftp", "git+ssh", "scp", "rsync"}:
            yield match.span(2)
    for pattern in (_WEBHOOKS, _PUBLIC_KEY, _BASE64_LINE, _BARE_ARGUMENT, _IN_QUERY, _COOKIE, _BEARER):
        for match in pattern.finditer(text):
            yield match.span(match.lastindex or 0)
    for match in _AUTHORIZATION.finditer(text):
        if not _NO_VALUE.fullmatch(match[1]):
            yield match.span(1)
    for match in _TOKENS.finditer(text):
        yield match.span()
    for match in _ASSIGNED.finditer(text):
        value = "quoted" if match["quoted"] is not None else "bare"
        if _gives_a_secret(match, value):
            yield match.span(value)
    for pattern in _detectors():
        for match in pattern.finditer(text):
            yield match.span(1) if match.lastindex == 1 else match.span()


def _lines_of(text: str, start: int, end: int) -> Iterator[Span]:
    """The lines of a block one by one: line numbers must stay right."""
    for match in _KEY_LINE.finditer(text, start, end):
        yield match.span(1)


def _gives_a_secret(match: re.Match[str], group: str) -> bool:
    """Whether an assignment is one of a secret: what the name says, and whether the value can be one."""
    before = _NAME_BEFORE.search(match.string, max(0, match.start() - 60), match.start())
    raw = (before.group() if before else "") + match["word"] + (match["more"] or "")
    option, name = raw.startswith("-"), raw.lstrip("-.").replace("-", "_")
    value, between = match[group].strip(), match["between"]
    if not value or _NO_VALUE.fullmatch(value):
        return False
    if between.isspace() and not (option and not value.startswith("-")):
        return False
    if "," in between and not option:
        return False
    if group == "bare" and (_CODE.match(value) or value.lower() == name.lower()):
        return False
    return _is_secret_of(name, value)


def _is_secret_of(raw: str, value: str) -> bool:
    name, shouted = raw.lower(), raw.isupper()
    if name.startswith(("passw", "passphrase", "passcode")) or re.search(r"passw(?:or)?d$|passphrase$|passcode$", name):
        return True
    if name.endswith("pwd"):
        return name not in {"pwd", "oldpwd", "pbs_o_workdir"} and not value.startswith("/")
    if name.endswith("pass"):
        return name != "pass" and (shouted or name.endswith("userpass"))
    if "secret" in name:
        return len(value) > 3
    if name.endswith(("credential", "credentials")):
        return len(value) >= 8 and "/" not in value and any(map(str.isdigit, value))
    if "key" in name[-9:]:
        return bool(_SURE_KEY.search(name))
    if "token" in name:
        if _TEXT_TOKEN.search(name) or value.replace(".", "").isdigit():
            return False
        return bool(_SURE_TOKEN.search(name)) or (shouted and "_" in name and len(value) > 3) or _random(value)
    return name in {"_auth", "x_auth", "http_auth", "basic_auth", "proxy_auth"}


def _random(value: str) -> bool:
    return (
        len(value) >= 16
        and re.fullmatch(r"[\w.~+/=-]+", value) is not None
        and any(map(str.isdigit, value))
        and any(map(str.isalpha, value))
    )


@lru_cache(maxsize=1)
def _detectors() -> tuple[re.Pattern[str], ...]:
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    # the classes' annotations say less than the classes do
    detectors: dict[str, Any] = get_mapping_from_secret_type_to_class()
    return tuple(
        pattern
        for detector in detectors.values()
        if issubclass(detector, RegexBasedDetector) and detector.__name__ not in _UNUSED_DETECTORS
        for pattern in detector.denylist
    )
