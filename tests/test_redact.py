"""--redact: nothing that identifies somebody is left in any output, and nothing else is changed."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from logforensics.analysis import Analysis, analyze
from logforensics.cli import app
from logforensics.redact.addresses import address_key
from logforensics.redact.analysis import redacted
from logforensics.redact.names import expanded
from logforensics.redact.redactor import Redactor
from logforensics.render.json_report import to_json

KEY_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKB"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

# (what a log says, what must not be left of it)
PLANTED = [
    # environment dumps
    ("export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", ["0123456789abcdef0123456789abcdef01234567"]),
    ("HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789", ["hf_AbCdEf"]),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ["wJalrXUtnFEMI", "bPxRfiCY"]),
    ("AWS_ACCESS_KEY_ID='AKIAIOSFODNN7EXAMPLE'", ["AKIAIOSFODNN7"]),
    ("environ({'AWS_SESSION_TOKEN': 'FwoGZXIvYXdzEBYaDKy', 'LANG': 'C'})", ["FwoGZXIvYXdzEBYaDKy"]),
    ("OPENAI_API_KEY=sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2", ["a1B2c3D4e5F6"]),
    ("the key sk-ant-api03-Zz9Yy8Xx7Ww6Vv5Uu4 was refused", ["Zz9Yy8Xx7Ww6"]),
    ("COMET_API_KEY: QwErTyUiOp123456", ["QwErTyUiOp123456"]),
    ("DB_PASSWORD=s3cr3t!pw", ["s3cr3t!pw"]),
    ("NEPTUNE_API_TOKEN=eyJhcGlfYWRkcmVzcyI6Imh0dHBzOi8v", ["eyJhcGlfYWRkcmVzcyI6Imh0dHBzOi8v"]),
    # arguments, dictionaries, headers
    ("train.py --password Tr0ub4dor&3 --steps 5", ["Tr0ub4dor"]),
    ("cmd = ['python', 'train.py', '--hf_token', 'tok-99887766', '--seed', '1']", ["tok-99887766"]),
    ("Namespace(hub_token='zz-secret-zz1', lr=0.1)", ["zz-secret-zz1"]),
    ('{"api_key": "abcd-1234-efgh", "model": "x"}', ["abcd-1234-efgh"]),
    ('{\\"client_secret\\": \\"c1i3nt-s3cr3t\\"}', ["c1i3nt-s3cr3t"]),
    ("Authorization: Bearer abcdefGHIJ.12345-67890", ["abcdefGHIJ.12345-67890"]),
    ("{'Authorization': 'Basic dXNlcjpwYXNzd29yZA=='}", ["dXNlcjpwYXNzd29yZA"]),
    ("Cookie: session=9f8e7d6c5b4a", ["9f8e7d6c5b4a"]),
    ("wandb login fedcba9876543210fedcba9876543210fedcba98", ["fedcba9876543210"]),
    ("x-api-key: 77aa88bb99cc", ["77aa88bb99cc"]),
    # tokens by shape
    ("fatal: bad credential ghp_0123456789abcdefghijklmnopqrstuvwxyz", ["ghp_0123456789"]),
    ("pushed with github_pat_11ABCDEFG0abcdefghij_0123456789", ["11ABCDEFG0abcdefghij"]),
    ("glpat-abcdefghij0123456789 expired", ["abcdefghij0123456789"]),
    ("xoxb-123456789012-abcdefABCDEF rejected", ["123456789012-abcdef"]),
    (f"jwt {JWT} rejected", ["eyJzdWIi", "dozjgNryP4J3"]),
    ("google AIzaSyA1234567890abcdefghijklmnopqrstuv denied", ["AIzaSyA1234567890"]),
    ("nvapi-Abc123Def456Ghi789Jkl012 denied", ["Abc123Def456"]),
    ("SG.abcdefghijklmnopqrstuv.0123456789012345678901234567890123456789abc refused", ["abcdefghijklmnopqrstuv"]),
    ("twilio SK0123456789abcdef0123456789abcdef refused", ["SK0123456789abcdef"]),
    # URLs
    ("cloning https://alice:hunter2@git.corp.example/repo.git", ["hunter2", "alice", "git.corp.example"]),
    ("index https://0a1b2c3d4e5f@o123.sentry.example/42", ["0a1b2c3d4e5f", "o123.sentry"]),
    ("POST https://hooks.slack.com/services/T01ABCDEF/B02GHIJKL/xYz123AbC456", ["T01ABCDEF", "xYz123AbC456"]),
    ("POST https://discord.com/api/webhooks/998877665544/AbCd-EfGh_123", ["998877665544", "AbCd-EfGh_123"]),
    ("GET https://blob.corp.example/x?sv=2022&sig=abc%2Bdef123 403", ["abc%2Bdef123", "blob.corp"]),
    ("GET https://data.corp.example/d?access_token=tok55667788&n=1", ["tok55667788"]),
    # keys
    (f"-----BEGIN RSA PRIVATE KEY-----\\n{KEY_BODY}\\n-----END RSA PRIVATE KEY-----", [KEY_BODY[:20]]),
    (KEY_BODY, [KEY_BODY[:20], KEY_BODY[-20:]]),
    ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGabcdefghijklmnop bob@login-2", ["IGabcdefghij", "bob", "login-2"]),
    # people
    ("mail alice.smith@uni.example when done", ["alice.smith", "uni.example"]),
    ('File "/home/carol/train.py", line 3', ["carol"]),
    ("/Users/dave/Library/x.py", ["dave"]),
    ("C:\\\\Users\\\\erin\\\\train.py", ["erin"]),
    ("/nfs/home/staff/frank/run.sh", ["frank"]),
    ("/scratch/grace/out", ["grace"]),
    ("USER=heidi", ["heidi"]),
    ("uid=1017(ivan) gid=100(users)", ["ivan"]),
    ("/tmp/torchinductor_judy/ab/cd.py", ["judy"]),
    ("wandb: Currently logged in as: mallory (a team)", ["mallory"]),
    ("View run at https://wandb.ai/niaj/project/runs/ab12", ["niaj"]),
    ("olivia@trn-11:~$ python train.py", ["olivia", "trn-11"]),
    # machines
    ("node-3:20001:20041 [0] NCCL INFO Bootstrap : Using eth0:10.20.30.40<0>", ["node-3", "10.20.30.40"]),
    ("  host      : gpu-07.cluster.example", ["gpu-07", "cluster.example"]),
    ("MASTER_ADDR=trn-head MASTER_PORT=29500", ["trn-head"]),
    ("torchrun --rdzv-endpoint=atlas:29400 train.py", ["atlas"]),
    ("SLURM_JOB_NODELIST=dgx-[01-02,07],login9", ["dgx-", "login9"]),
    ("srun: error: nid002101: task 3: Killed", ["nid002101"]),
    ("slurmstepd: error: *** STEP 12.0 ON w117 CANCELLED AT 2026-11-30T19:11:05 ***", ["w117"]),
    ("Nov 30 19:11:05 bm-1-17 kernel: Out of memory: Killed process 123 (python)", ["bm-1-17"]),
    ("[pod/train-job-worker-0/pytorch] started", ["train-job-worker-0"]),
    ("failed to connect to [trn-5.dc.internal]:29500", ["trn-5", "dc.internal"]),
    ("SocketImpl(fd=3, addr=[::ffff:10.9.8.7]:41000, remote=[fd12:3456::78]:29500)", ["10.9.8.7", "fd12:3456::78"]),
    ("ip-10-77-1-2.ec2.internal is not reachable", ["10-77-1-2"]),
    ("with remote peer 172.31.4.5<41234>", ["172.31.4.5"]),
    ("The node 'comp-21_4711_0' has closed the rendezvous", ["comp-21"]),
    ("global_rank_mapping=defaultdict(<class 'list'>, {'wk-1': [0, 1], 'wk-2': [2, 3]})", ["wk-1", "wk-2"]),
    ("deepspeed.launcher.launch --world_info=eyJ3ay0xIjogWzAsIDFdLCAid2stMiI6IFsyXX0=", ["eyJ3ay0xIjog"]),
    ("ssh: connect to host login-9 port 22: Connection refused", ["login-9"]),
]  # fmt: skip

# Lines that look as if they held something and do not.
HARMLESS = [
    "torch 2.13.0.1, nvidia-cudnn-cu12==8.9.2.26, NCCL version 2.21.5.1, libcudnn.so.8.9.2.26",
    "tokens: 4096, max_tokens=2048, num_token=12, eos_token='</s>', pad_token_id=0, bos_token: <s>",
    "TOKENIZERS_PARALLELISM=false TOKENIZER=llama special_tokens_map.json hf_raise_for_status",
    "Unexpected token: identifier; the key is 'input_ids'; KeyError: 'labels'; key=value",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (128x63 and 64x256)",
    "127.0.0.1:29500 [::1]:29500 0.0.0.0 localhost [::]:29500 255.255.255.0",
    "Killed process 123 (python) total-vm:123kB, anon-rss:456kB, uid=1000",
    "commit 0123456789abcdef0123456789abcdef01234567 sha256:" + "ab12" * 16,
    "c10d::add std::vector<at::Tensor> torch::autograd::Node dead::beef 19:11:05 2026-11-30T19:11:05",
    "https://huggingface.co/meta-llama/Llama https://pytorch.org/docs https://github.com/pytorch/pytorch/issues/1",
    "/root/train.py /home/user/project/train.py /opt/venv/lib/python3.11/site-packages/torch/x.py",
    "[rank3]: [E1130 19:11:05.123456789 ProcessGroupNCCL.cpp:1234] [PG ID 0 PG GUID 0 Rank 3] Watchdog caught",
    "password: None, hub_token=None, api_key=<your key>, token=${HF_TOKEN}, login(token=args.hf_token)",
    "[default0]:[rank0]:2026 step 12 | worker 3 | gpu1 | cuda:0 | node 2 | rank 5 on node 2",
    "mlx5_0:1 GPU-5c2f1e3a-1111-2222-3333-444455556666 00000000:3b:00.0 50% 3/10 x[0:3]",
    "==================== ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ --------------------",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED",
    "PWD=/opt/run SLURM_JOB_ID=12 auth/munge store key: default_pg/0 credentials: /etc/x.json",
    "GuardedBy @torch.compile memcpy@GLIBC_2.14 git@github.com:org/repo.git foo@1.2.3",
]


@pytest.mark.parametrize(("text", "secrets"), PLANTED, ids=range(len(PLANTED)))
def test_every_shape_is_found(text, secrets):
    said = Redactor().text(text)

    assert not [secret for secret in secrets if secret in said], said


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_it_stays(text):
    assert Redactor().text(text) == text


@pytest.mark.parametrize("text", [text for text, _ in PLANTED])
def test_redacting_twice_changes_nothing(text):
    once = Redactor().text(text)

    assert Redactor().text(once) == once


def test_the_words_around_a_secret_stay():
    said = Redactor().text(
        "E 19:11:05 [rank3]: OSError: x.py:12 HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUv at /home/ann/x.py:7"
    )

    assert said == "E 19:11:05 [rank3]: OSError: x.py:12 HF_TOKEN=[secret-1] at /home/user-1/x.py:7"


def test_the_same_name_has_the_same_alias_everywhere():
    lines = [
        "started on gpu-07",
        "gpu-07:1:2 [0] NCCL INFO",
        "host : gpu-07.cluster.example",
        "gpu-08:1:2 [0] NCCL INFO",
    ]
    redactor = Redactor()
    for line in lines:
        redactor.learn(line)

    assert [redactor.text(line) for line in lines] == [
        "started on host-1",
        "host-1:1:2 [0] NCCL INFO",
        "host : host-1",
        "host-2:1:2 [0] NCCL INFO",
    ]


def test_the_same_label_in_two_domains_is_two_hosts():
    redactor = Redactor()

    said = redactor.text("tcp://n1.a.example:1 tcp://n1.b.example:1 tcp://n1.a.example:2")

    assert said == "tcp://host-1:1 tcp://host-2:1 tcp://host-1:2"


def test_a_secret_is_known_where_nothing_gives_it_away():
    redactor = Redactor()
    lines = ["MY_SERVICE_TOKEN=zyx987wvu654", "curl zyx987wvu654"]
    for line in lines:
        redactor.learn(line)

    assert [redactor.text(line) for line in lines] == ["MY_SERVICE_TOKEN=[secret-1]", "curl [secret-1]"]


@pytest.mark.parametrize(
    "text", ["%2Fdata%2Fwilma%2Fx", "a\\nwilma:", "\x1b[1mwilma\x1b[0m", "wi\x1b[1mlma", "run_wilma_3"]
)
def test_a_known_name_does_not_hide_behind_encodings(text):
    redactor = Redactor()
    redactor.learn("USER=wilma")

    assert "wilma" not in redactor.text(text)
    assert "user-1" in redactor.text(text)


@pytest.mark.parametrize("name", ["train", "rank", "python", "error", "nccl", "epoch"])
def test_a_user_with_the_name_of_a_common_word_does_not_change_the_log(name):
    redactor = Redactor()

    assert redactor.text(f"/home/{name}/x.py") == "/home/user-1/x.py"
    assert redactor.text(f"the {name} said: {name}") == f"the {name} said: {name}"


def test_an_alias_that_a_log_uses_itself_is_not_given_to_another():
    redactor = Redactor()
    for line in ("MASTER_ADDR=alpha7", "host-1:5:6 [0] NCCL INFO"):
        redactor.learn(line)

    assert redactor.text("host-1:5:6 [0] NCCL INFO") == "host-1:5:6 [0] NCCL INFO"
    assert redactor.text("MASTER_ADDR=alpha7") == "MASTER_ADDR=host-2"


def test_a_schedulers_list_gives_the_same_aliases_as_the_hosts():
    redactor = Redactor()

    assert redactor.text("NodeList=gpu-[01-03]") == "NodeList=host-1,host-2,host-3"
    assert redactor.text("srun: error: gpu-02: task 1: Killed") == "srun: error: host-2: task 1: Killed"


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("gpu-[01-03,07],login", ["gpu-01", "gpu-02", "gpu-03", "gpu-07", "login"]),
        ("r[1-2]n[5-6]", ["r1n5", "r1n6", "r2n5", "r2n6"]),
        ("a,b:8", ["a", "b:8"]),
        ("x[3", ["x3"]),
    ],
)
def test_a_schedulers_list_is_expanded(expression, names):
    assert expanded(expression) == names


def test_a_huge_list_is_cut():
    assert len(expanded("n[0-999999999]")) == 512


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80::1"),
        ("FE80:0:0:0:0:0:0:1", "fe80::1"),
        ("127.0.0.1", None),
        ("169.254.169.254", None),
        ("c10d::add", None),
        ("300.1.1.1", None),
    ],
)
def test_an_address_has_one_spelling(text, key):
    assert address_key(text) == key


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from("abz-_.:/@[]{}=\"' \n\\\x1b1279,<>%tokenkeyhost"), max_size=80))
def test_any_text_is_redacted_once_and_for_all(text):
    once = Redactor().text(text)

    assert Redactor().text(once) == once


def test_our_own_advice_is_not_redacted():
    remedies = tomllib.loads((Path(__file__).parents[1] / "reports" / "remedies.toml").read_text("utf-8"))["remedy"]

    for remedy in remedies:
        for text in (remedy["title"], *remedy.get("steps", []), *remedy.get("commands", [])):
            assert Redactor().advice(text) == text


# ------------------------------------------------------------------------------------------ a whole run


def write_run(folder: Path) -> Path:
    """A run of as many ranks as there are planted lines: rank 2 fails first, the others say what is planted later."""
    logs = folder / "home" / "carol" / "gpu-07.cluster.example"
    logs.mkdir(parents=True)
    world = len(PLANTED)
    for rank, (line, _) in enumerate(PLANTED):
        minute = 10 if rank == 2 else 20
        (logs / f"rank{rank}.log").write_text(
            f"2026-11-30 19:00:00,000 INFO rank={rank} local_rank={rank} world_size={world} host=gpu-07 pid={4000 + rank}\n"
            f"2026-11-30 19:0{rank % 9}:30,000 INFO step {rank} loss 1.5\n"
            f"{line}\n"
            f"2026-11-30 19:{minute}:00,{rank:03d} ERROR giving up\n"
            "Traceback (most recent call last):\n"
            '  File "/home/carol/train.py", line 12, in <module>\n'
            "    main()\n"
            f"RuntimeError: cannot go on: {line}\n"
            f"{line}\n"
        )
    launcher = (
        "node-3:20001:20041 [0] NCCL INFO Bootstrap : Using eth0:10.20.30.40<0>\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\n"
        "/home/carol/train.py FAILED\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        "  time      : 2026-11-30_19:10:01\n"
        "  host      : gpu-07.cluster.example\n"
        "  rank      : 2 (local_rank: 2)\n"
        "  exitcode  : 1 (pid: 4002)\n"
        "  error_file: <N/A>\n"
        "============================================================\n"
    )
    (logs / "launcher.err").write_text(launcher)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def plain(run) -> Analysis:
    return analyze(run)


@pytest.fixture(scope="module")
def hidden(run) -> Analysis:
    return analyze(run, redact=True)


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def outputs(run: Path, folder: Path) -> dict[str, str]:
    """Everything that the program can say about a run with --redact, as text."""
    files = {form: folder / f"out.{form}" for form in ("html", "markdown", "json", "junit", "parquet")}
    terminal = call("analyze", run, "--redact", *(word for form, path in files.items() for word in (f"--{form}", path)))
    said = {form: html.unescape(path.read_text("utf-8")) for form, path in files.items() if form != "parquet"}
    frame = polars.read_parquet(files["parquet"])
    said["parquet"] = "\n".join(map(str, frame.cast(polars.String).rows()))
    said["terminal"] = terminal
    for form in ("table", "csv", "json"):
        said[f"timeline {form}"] = call("timeline", run, "--redact", "--format", form)
    return said


def stands_in(secret: str, text: str) -> bool:
    """Whether a text holds a secret; a name of letters only counts as a word ("alice" is in "italice")."""
    return (
        secret in text if not secret.isalpha() else re.search(rf"(?<![A-Za-z]){secret}(?![A-Za-z])", text) is not None
    )


def test_nothing_is_left_in_any_output(run, plain, tmp_path):
    secrets = {secret for _, pieces in PLANTED for secret in pieces}
    unhidden = "\n".join(map(str, plain.timeline.cast(polars.String).rows()))
    shown = {secret for secret in secrets if stands_in(secret, unhidden)}

    left = {
        (form, secret) for form, text in outputs(run, tmp_path).items() for secret in secrets if stands_in(secret, text)
    }

    assert len(PLANTED) >= 40
    assert len(shown) > 0.9 * len(secrets)  # else the test would show nothing
    assert left == set()


def test_the_verdict_is_the_same(plain, hidden):
    assert plain.verdict.ranks == [2]
    for name in ("status", "category", "ranks", "phase", "confidence", "rules"):
        assert getattr(hidden.verdict, name) == getattr(plain.verdict, name), name
    assert [(state.rank, state.fate, state.last_step, state.exit_code) for state in hidden.ranks] == [
        (state.rank, state.fate, state.last_step, state.exit_code) for state in plain.ranks
    ]


def test_nodes_keep_their_grouping(plain, hidden):
    pairs = {(one.node, other.node) for one, other in zip(plain.events, hidden.events, strict=True)}

    assert len({before for before, _ in pairs}) == len({after for _, after in pairs}) == len(pairs)
    assert {after for _, after in pairs if after} <= {f"host-{number}" for number in range(1, 200)}


def test_places_and_numbers_stay(plain, hidden):
    same = ("line", "end_line", "offset", "rank", "pid", "time_us", "kind", "signature", "role", "category", "repeats")

    for one, other in zip(plain.events, hidden.events, strict=True):
        assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]
    assert all(
        [number for number, _ in lines] == [number for number, _ in hidden.excerpts[key]]
        for key, lines in plain.excerpts.items()
    )
    assert any("RuntimeError: cannot go on" in event.message for event in hidden.first_exceptions)


def test_first_exceptions_are_events_of_the_timeline(hidden):
    assert hidden.first_exceptions
    assert all(event is hidden.events[event.event_id] for event in hidden.first_exceptions)


def test_the_original_is_not_changed(run, plain):
    before = json.dumps(to_json(plain))

    redacted(plain)

    assert json.dumps(to_json(plain)) == before
    assert "gpu-07" in before


def test_an_analysis_that_is_redacted_already_stays(hidden):
    assert to_json(redacted(hidden)) == to_json(hidden)


def test_names_in_the_head_of_a_log_are_known_in_the_rest(tmp_path):
    (tmp_path / "rank0.log").write_text(
        "LOGNAME=wilma\n" + "step 1\n" * 50 + "Traceback (most recent call last):\n"
        '  File "/opt/x.py", line 3, in <module>\n'
        "OSError: cannot read /lustre/wilma/x\n"
    )

    analysis = analyze(tmp_path, redact=True)

    assert [event.message for event in analysis.first_exceptions] == ["OSError: cannot read /lustre/user-1/x"]


def test_lines_are_not_counted_for_a_copy(plain, run):
    fresh = analyze(run)
    uncounted = [event for event in fresh.events if getattr(event, "_line", 0) == -1]

    copy = redacted(fresh)

    assert uncounted
    assert all(getattr(copy.events[event.event_id], "_line", 0) == -1 for event in uncounted)
    assert [event.line for event in copy.events] == [event.line for event in plain.events]


def test_nothing_is_loaded_for_it_until_it_is_asked_for(run):
    program = (
        "import sys; from logforensics.cli import app; from logforensics.analysis import analyze; analyze(sys.argv[1]);"
        "print([name for name in sys.modules if 'redact' in name or 'detect_secrets' in name or name == 'requests'])"
    )

    done = subprocess.run([sys.executable, "-c", program, str(run)], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
