"""What is learned from a file: an unknown platform's prefix, and a progress line that no signature knows."""

from __future__ import annotations

from pathlib import Path

from logforensics import analyze
from logforensics.carriers import learn_carrier
from logforensics.counters import learn_steps
from logforensics.prefixes import peel

ORDINARY = [f"7c1e04b{n % 10} [rank={n % 4}] || loaded shard {n} of the corpus" for n in range(12)]


def lines_of(*texts: str):
    start = 0
    for text in texts:
        yield start, start + len(text), peel(text)
        start += len(text) + 1


def test_a_prefix_that_most_lines_share_is_learned_with_the_rank_in_it():
    carrier = learn_carrier(ORDINARY)

    assert carrier is not None
    length, said = carrier.take("0f3a99c1 [rank=3] || ValueError: boom")
    assert "0f3a99c1 [rank=3] || ValueError: boom"[length:] == "ValueError: boom"
    assert said == {"rank": 3}


def test_few_lines_or_unlike_lines_teach_no_prefix():
    assert learn_carrier(ORDINARY[:5]) is None
    assert learn_carrier([f"{word} says: something" for word in "abcdefghijkl"]) is None


def test_a_traceback_behind_an_unknown_prefix_is_read(tmp_path: Path):
    failing = [
        "Traceback (most recent call last):",
        '  File "/work/train.py", line 3, in main',
        "    loss.backward()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.41 GiB. GPU 2 has a total capacity of 79.10 GiB",
    ]
    log = [*ORDINARY, *(f"7c1e04b2 [rank=2] || {line}" for line in failing)]
    (tmp_path / "trial.log").write_text("\n".join(log) + "\n")

    verdict = analyze(tmp_path).verdict

    assert (verdict.category, verdict.ranks) == ("cuda_oom", [2])
    assert verdict.evidence[0].line == len(log)


def test_the_number_that_grows_is_the_step():
    found = learn_steps(
        lines_of(*(f"upd {n:,} | loss {4 - n / 1e5:.3f} | ppl 4.{n % 7}" for n in range(800, 2400, 400)))
    )

    assert [line.step for line in found] == [800, 1200, 1600, 2000]
    assert {line.activity for line in found} == {"training"}


def test_retries_ports_and_times_of_day_are_no_progress():
    assert learn_steps(lines_of(*(f"retry {n} of the upload" for n in range(9)))) == []
    assert learn_steps(lines_of(*(f"listening on port {n}" for n in range(9)))) == []
    assert learn_steps(lines_of(*(f"alive at 10:{n:02d}:00" for n in range(9)))) == []


def test_an_error_is_survived_when_learned_progress_goes_on(tmp_path: Path):
    def steps(low: int, high: int) -> list[str]:
        return [f"upd {n} | loss 2.{n % 10}" for n in range(low, high)]

    caught = ["Traceback (most recent call last):", '  File "x.py", line 1, in load', "    open(p)", "KeyError: 'a'"]
    (tmp_path / "train.log").write_text("\n".join([*steps(0, 9), *caught, *steps(9, 20), "training finished"]) + "\n")

    verdict = analyze(tmp_path).verdict

    assert verdict.category == "no_failure"
