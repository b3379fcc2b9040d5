"""The values of the HTML report, without HTML: folding keeps every rank and says what it left out."""

from __future__ import annotations

import json

import pytest
from render_samples import SECOND, START, event, fleet, ordinary, timeout

from logforensics.identity import Identity
from logforensics.layout import Hints
from logforensics.model import RankState
from logforensics.render.attempts import attempt_rows
from logforensics.render.environment import environment_rows
from logforensics.render.event_table import MOST_ROWS, event_table
from logforensics.render.fate_grid import MOST_TILES, fate_grid
from logforensics.render.html import _leads, _table
from logforensics.render.lanes import folded_lanes
from logforensics.render.names import name_list
from logforensics.render.source_rows import FOLD_ABOVE, source_rows
from logforensics.render.text import clean
from logforensics.render.timeline_chart import MOST_MARKS, timeline_chart
from logforensics.render.view import build_page
from logforensics.render.words import FATE_WORDS
from logforensics.sources import Source


def chart_of(analysis):
    page = build_page(analysis)
    table = _table(analysis, page)
    chart = timeline_chart(analysis, table, _leads(page, table))
    assert chart is not None
    return chart


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ""),
        (["node1"], "node1"),
        (["node10", "node9", "node1"], "node[1,9-10]"),
        (["gpu-02", "gpu-01", "gpu-1"], "gpu-1, gpu-[01-02]"),
        (["a0", "a1", "b"], "a[0-1], b"),
        (["login", "login"], "login"),
    ],
)
def test_many_names_are_written_in_few_characters(names, expected):
    assert name_list(names) == expected


@pytest.mark.parametrize("hidden", ["\u3164", "\u115f", "\u034f", "\ufe00", "\U000e0101", "\u200d", "\u2067", "\ufeff"])
def test_characters_that_take_no_room_are_spelled_out(hidden):
    assert clean(f"a{hidden}b") == "a" + hidden.encode("ascii", "backslashreplace").decode() + "b"


def test_the_grid_has_a_tile_a_node_and_a_cell_a_rank():
    grid = fate_grid(ordinary().ranks, FATE_WORDS)

    assert [(tile.name, tile.origin) for tile in grid.tiles] == [("node0", True), ("node not named", False)]
    assert [(cell.ranks, cell.fate) for cell in grid.tiles[0].cells] == [
        ("0", "timed_out"),
        ("1", "origin"),
        ("2", "timed_out"),
    ]
    assert grid.numbered
    assert grid.folded == 0
    assert {cell.fate: cell.count for cell in grid.legend} == {"origin": 1, "timed_out": 2, "torn_down": 1}


def test_like_nodes_of_a_large_run_share_a_tile_and_the_odd_ones_stay():
    grid = fate_grid(fleet(4096).ranks, FATE_WORDS)

    assert [tile.name for tile in grid.tiles] == ["node170", "node256", "510 nodes: node[0-169,171-255,257-511]"]
    assert sum(cell.count for tile in grid.tiles for cell in tile.cells) == 4096
    assert grid.folded == 510
    assert len(fate_grid(fleet(8 * MOST_TILES).ranks, FATE_WORDS).tiles) == MOST_TILES


def test_folded_lanes_hold_every_rank_once_and_the_guilty_first():
    states = fleet(1024).ranks
    lanes = folded_lanes(states, {341})

    assert sorted(key for lane in lanes for key in lane.keys) == list(range(1024))
    assert lanes[0].keys == [341] and lanes[0].fate == "origin" and lanes[0].label == "rank 341"
    assert {lane.fate for lane in lanes} == {"origin", "timed_out", "silent"}


def test_a_middling_run_folds_by_node():
    lanes = folded_lanes([RankState(rank, f"node{rank // 8}", fate="timed_out") for rank in range(128)], set())

    assert [lane.note for lane in lanes] == [f"node{number}" for number in range(16)]
    assert all(lane.label == "8 ranks" for lane in lanes)


def test_the_chart_knows_when_a_wait_began():
    analysis = ordinary()
    analysis.events[-1] = timeout(
        2, 600.01, fields={"elapsed_ms": 600_000}, operation="ALLREDUCE", sequence=7, event_id=2
    )
    chart = chart_of(analysis)

    assert chart.labels == ["ALLREDUCE #7"]
    assert chart.spans == [(2, 10_000, 600_010_000, 0, 2, 0)]
    assert [(time, name) for time, name, _tone in chart.moments] == [
        (0, "first failure"),
        (600_000_000, "first timeout"),
    ]


def test_the_chart_opens_on_the_incident_of_a_long_run():
    analysis = ordinary()
    analysis.events.append(event(0, "step 1", -86_400, role="progress", kind="progress", category=None, event_id=3))
    day = 86_400 * 1_000_000

    window = chart_of(analysis).window
    assert window is not None
    assert day - 60_000_000 < window[0] < day and window[1] > day + 600_000_000
    assert chart_of(ordinary()).window is None


def test_marks_without_a_time_are_counted_and_turn_the_chart_to_order():
    analysis = ordinary()
    assert chart_of(analysis).by_time

    analysis.events[0].time_us = None
    chart = chart_of(analysis)

    # the evidence itself cannot be placed on the clock
    assert chart.untimed == 1
    assert not chart.by_time


def test_what_is_not_drawn_is_counted():
    chart = chart_of(fleet(4096))

    assert len(chart.marks) == chart.total <= MOST_MARKS
    assert chart.total + chart.not_drawn == len(fleet(4096).events)
    guilty = [mark for mark in chart.marks if mark[0] == 1365 and mark[2] == 0]
    assert len(guilty) == 1 and chart.leads[guilty[0][3]] == "evidence-1"


def test_writers_that_are_no_rank_have_lanes_of_their_own():
    analysis = ordinary()
    for number, node in enumerate(("node0", "node1")):
        one = event(None, "agent died", 601, stream="launcher", node=node, event_id=3 + number)
        analysis.events.append(one)
    chart = chart_of(analysis)

    assert chart.writers == ["launcher · node0", "launcher · node1"]
    assert [mark[0] for mark in chart.marks[-2:]] == [-1, -2]


def test_the_chart_is_plain_values():
    assert json.loads(json.dumps(chart_of(fleet(64)).values()))["category"] == "cuda_oom"


def test_every_event_of_a_small_run_has_its_row():
    analysis = fleet(64)
    table = event_table(analysis.events, set(), set())

    assert len(table.rows) == table.total == len(analysis.events)
    assert table.anchor(5) == "event-5" and table.anchor(-1) == ""
    assert table.left_out == {}


def test_like_events_of_a_large_run_share_a_row_but_not_with_the_evidence():
    analysis = fleet(1024)
    cause = analysis.verdict.evidence[0].event_id
    table = event_table(analysis.events, {cause}, {341})

    own = table.rows[table.row_of[cause]]
    assert own.count == 1 and own.ranks == "341"
    waiting = next(row for row in table.rows if row.signature == "pg_nccl/watchdog-timeout")
    assert waiting.count == 1015 and waiting.node == "127 nodes" and waiting.last_time > waiting.time
    assert sum(row.count for row in table.rows) == len(analysis.events)


def test_a_full_table_drops_signs_of_life_before_failures_and_says_so():
    words = [f"{chr(97 + n // 26 // 26 % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n % 26)}" for n in range(3000)]
    events = [
        event(
            0,
            word,
            n,
            role="progress" if n % 2 else "cause",
            event_id=n,
            time_basis="bracketed",
            time_error_us=90_000_000,
        )
        for n, word in enumerate(words)
    ]
    table = event_table(events, {1}, set())

    assert len(table.rows) == MOST_ROWS
    assert table.left_out == {"progress": 1499, "cause": 1}
    assert table.anchor(1) == "event-1"
    assert [row.number for row in table.rows] == list(range(MOST_ROWS))
    assert not table.rows[0].sure and table.rows[0].within == "± 2 min"


def test_the_environment_says_who_differs():
    version = {"kind": "config", "role": "context", "category": None, "signature": "environment/torch-version"}
    rows = environment_rows(
        [
            event(0, "PyTorch version: 2.13", 0, **version, fields={"version": "2.13"}),
            event(1, "PyTorch version: 2.12", 0, **version, fields={"version": "2.12"}),
            event(2, "PyTorch version: 2.13", 0, **version, fields={"version": "2.13"}),
            event(None, "max_restarts : 0", 0, **version, fields={"name": "max_restarts", "value": "0"}),
            event(0, "error of version 9", 0, fields={"version": "9"}),
        ]
    )

    assert [(row.name, row.differs) for row in rows] == [("torch-version", True), ("max restarts", False)]
    assert [(one.value, one.who) for one in rows[0].values] == [("2.13", "ranks 0, 2"), ("2.12", "rank 1")]
    assert rows[1].values[0].who == "node0"


def test_attempts_are_rows_only_when_there_are_several():
    analysis = ordinary()
    first, second = analysis.attempts
    second.start_us, second.end_us = START, START + 10 * SECOND

    assert attempt_rows([first], []) == []
    rows = attempt_rows([first, second], [event(0, "step 1", 20, attempt=1, role="progress")])
    assert [(row.number, row.category, row.confidence, row.last_step, row.events) for row in rows] == [
        (0, "user_exception", "high", "812", 0),
        (1, "user_exception", "high", "812", 1),
    ]
    assert (rows[0].lasted, rows[1].lasted) == ("", "10.0 s")


def test_like_files_of_a_large_run_share_a_row(tmp_path):
    few = [Source(f"rank{n}.log", tmp_path, 1000, START, "log", Hints()) for n in range(FOLD_ABOVE)]
    many = [*few, Source("launcher.out", tmp_path, 5, START, "log", Hints())]
    told = event(3, "x", 0, source="rank3.log")

    assert len(source_rows(few, [told])) == FOLD_ABOVE
    rows = source_rows(many, [told])
    assert [(row.name, row.files, row.size, row.events) for row in rows] == [
        ("rank*.log", 64, "64.0 KB", 1),
        ("launcher.out", 1, "5 B", 0),
    ]


def test_calls_that_differ_are_grouped_by_what_was_called():
    analysis = ordinary()
    analysis.identity = Identity(world_size=4)
    analysis.collectives[0].mismatched = [
        {"rank": rank, "operation": "BROADCAST", "sequence": 7, "numel_in": 4096, "numel_out": 1} for rank in range(20)
    ]

    row = build_page(analysis).collectives[0]
    assert [(call.ranks, call.sequence, call.sizes) for call in row.calls] == [("ranks 0-19", "7", "4,096 → 1")]
    assert row.mismatched == ["ranks 0-19: BROADCAST, number 7, elements 4,096 → 1"]
