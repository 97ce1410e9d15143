"""Simulated series of presets: rates second by second, and round trips of probes."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from fit_series import Values

import skybraid

SAMPLES = 10
"""Rows of the table `links` in a second."""

PROBES = """
[flow.probe]
from = "ground"
traffic = { kind = "ping", every = "200ms", packet = "64B" }
transport = { protocol = "udp", scheduler = "single" }
"""


class Run(NamedTuple):
    """A run of several paths.

    Attributes:
        down: rates down in Mbit/s, shape (paths, seconds).
        up: likewise up.
        rtts: round trips over the first path in ms, NaN where no reply came, shape (probes,).
    """

    down: Values
    up: Values
    rtts: Values


def fly(presets: Mapping[str, str], length_s: int, seeds: Sequence[int], groups: str = "") -> Iterator[Run]:
    """Simulates paths with presets.

    Args:
        presets: TOML of each path's preset.
        length_s: length of a run, in s.
        seeds: one for each run.
        groups: tables of the scenario that correlate the paths.
    """
    with tempfile.TemporaryDirectory(prefix="skybraid-presets-") as name:
        folder = Path(name)
        text = f'duration = "{length_s}s"\n'
        for path, preset in presets.items():
            (folder / f"{path}.toml").write_text(preset)
            text += f'[path.{path}]\npreset = "{path}.toml"\n'
        scenario = skybraid.Scenario(text + groups + PROBES, str(folder / "scenario.toml"))
        for seed in seeds:
            tables = skybraid.run(scenario, seed=seed, tables=["links", "messages"]).tables
            rates = [_rates(tables["links"], list(presets), way) for way in ("downlink", "uplink")]
            yield Run(*rates, round_trips(tables["messages"]))


def _rates(links: pl.DataFrame, paths: Sequence[str], direction: str) -> Values:
    found = []
    for path in paths:
        rows = links.filter((pl.col("path") == path) & (pl.col("direction") == direction)).sort("time_ns")
        rates = (rows["rate_bps"] * rows["up"]).to_numpy() * 1e-6
        found.append(rates[: len(rates) // SAMPLES * SAMPLES].reshape(-1, SAMPLES).mean(axis=1))
    return np.array(found)


def round_trips(messages: pl.DataFrame) -> Values:
    """Returns round trips in ms; answers leave in the order of the probes' arrival."""
    probes = messages.filter(pl.col("flow") == "probe").sort("id")
    answers = messages.filter(pl.col("flow") == "probe.answer").sort("id")
    sent, arrived, back = (
        column.cast(pl.Float64).fill_null(np.nan).to_numpy() * 1e-6
        for column in (probes["sent_ns"], probes["delivered_ns"], answers["delivered_ns"])
    )
    rtts = np.full(len(sent), np.nan)
    there = np.flatnonzero(np.isfinite(arrived))
    there = there[np.argsort(arrived[there], kind="stable")][: len(back)]
    rtts[there] = back[: len(there)] - sent[there]
    return rtts
