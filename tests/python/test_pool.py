"""The threads that make all runs: order, errors, Ctrl-C, and how far jobs are taken ahead."""

import threading
from collections.abc import Iterator

import pytest

from skybraid.execute.pool import Gauge, finished, on_all_cores


def never() -> None:
    """Stops nothing."""


def test_results_keep_the_order_of_the_jobs() -> None:
    first_may_end = threading.Event()

    def work(job: int) -> int:
        if job == 0:
            assert first_may_end.wait(60)
        else:
            first_may_end.set()
        return 10 * job

    assert on_all_cores(work, range(5), Gauge(5, 1.0), None, workers=2) == [0, 10, 20, 30, 40]


def test_no_jobs_give_no_results() -> None:
    assert on_all_cores(str, [], Gauge(0, 1.0), None) == []


def test_jobs_are_taken_while_they_are_asked_for() -> None:
    taken: list[int] = []
    release = threading.Event()

    def jobs() -> Iterator[int]:
        for job in range(100):
            taken.append(job)
            yield job

    def work(job: int) -> int:
        assert release.wait(60)
        return job

    batches = finished(work, jobs(), never, workers=2)
    assert next(batches) == []  # a turn for the caller
    assert len(taken) <= 5
    release.set()
    assert sorted(job for batch in batches for job in batch) == list(range(100))


def test_an_error_of_a_job_is_raised_and_stops_the_others() -> None:
    gauge = Gauge(3, 1.0)

    def work(job: int) -> None:
        if job == 0:
            message = "no such luck"
            raise RuntimeError(message)
        while True:
            gauge.raise_if_stopped()

    with pytest.raises(RuntimeError, match="no such luck"):
        on_all_cores(work, range(3), gauge, None, workers=2)


def test_runs_that_keep_what_they_have_end_at_ctrl_c() -> None:
    gauge = Gauge(2, 1.0, keeps=True)
    shares: list[float] = []

    def work(job: int) -> int:
        report = gauge.reporter(job)
        while report(0.5):
            pass
        return job

    def interrupted(share: float) -> None:
        shares.append(share)
        if len(shares) == 1:
            raise KeyboardInterrupt

    assert on_all_cores(work, range(2), gauge, interrupted, workers=2) == [0, 1]
    assert shares[-1] < 1
