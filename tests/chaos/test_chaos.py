"""The short form: scripted engines, ten people, every fault; counts alone, no times. `make chaos` plays all of it and prints the table."""

from __future__ import annotations

import pytest

from tests.chaos import stages
from tests.chaos.faults import Fault, Found, Row, nobody, verdicts

N_PEOPLE = 10

pytestmark = pytest.mark.may_block  # gateways are started and stopped on the test's own loop


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stage", [stages.engines_break, stages.processes_die, stages.told_twice])
async def test_whom_a_fault_concerns_is_told_and_nobody_else_notices(stage: stages.Stage) -> None:
    found = Found(print)  # with how long each took; a busy machine may be late
    await stage(found, N_PEOPLE)
    assert not found.wrong, "\n".join([*found.wrong, *(row.line() for row in found.rows)])
    assert found.rows


def row(**changes: object) -> Row:
    fields: dict[str, object] = {
        "name": "x", "n_told": 3, "told_ms": 10.0, "n_disturbed": 0, "recovered_s": 1.0, "metric": "m", "counted": 1.0,
    }  # fmt: skip
    return Row(**{**fields, **changes})  # type: ignore[arg-type]  # a table of any fields


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"n_told": 0}, "nobody was told"),
        ({"n_disturbed": 2, "noticed": ("talker 4",)}, "2 others noticed: talker 4"),
        ({"recovered_s": None}, "did not recover"),
        ({"counted": 0.0}, "did not count"),
        ({"n_late": 2, "told_ms": 1200.0}, "2 were told more than 1 s after it (the slowest: 1200 ms)"),
        ({"wrong": "piper hangs"}, "piper hangs"),
    ],
)
def test_each_thing_that_can_go_wrong_is_found(changes: dict[str, object], word: str) -> None:
    async def nothing() -> None:
        pass

    fault = Fault(name="x", begin=nothing, concerns=nobody, metric="m")
    assert verdicts(row(), fault, is_timed=True) == []
    (wrong,) = verdicts(row(**changes), fault, is_timed=True)
    assert word in wrong
