"""Measured flights by set, as a user would pass them to `skybraid fit`: lists of flights in order of time."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from build_traces import PAM_CARRIERS, read_ping
from fit_presets import drone_recordings, nr_rates, read_dish, settled
from fit_series import Values, column

from skybraid import traces
from skybraid.traces.flights import Flight
from skybraid.traces.measurement import Column

MIN_FLIGHT_S = 120.0
PAM_GROUP = 6


def flight(name: str, times_s: Values, **columns: Values) -> Flight:
    """Returns a flight of columns such as `downlink_rate` in Mbit/s or `delay` in ms, without rows that have a NaN."""
    step_s = float(np.median(np.diff(times_s)))
    kept = []
    for title, values in columns.items():
        direction, _, quantity = title.rpartition("_")
        kept.append(Column(quantity, {"rate": "Mbit/s", "delay": "ms", "loss": "%"}[quantity], values, direction))
    clock_s, times_s = times_s, times_s - times_s[0]
    whole = Flight(name, times_s, tuple(kept), float(times_s[-1]) + step_s, clock_s=clock_s)
    return whole.without_gaps().without_pauses()


def even(name: str, step_s: float, **columns: Values) -> Flight:
    """Returns a flight of values at even steps."""
    count = len(next(iter(columns.values())))
    return flight(name, np.arange(count, dtype=np.float64) * step_s, **columns)


def conext(folder: Path, network: str) -> list[Flight]:
    """Returns a network's downlink capacity from a car, by drive without gaps."""
    text = (folder / "conext23_paired/downlink.csv").read_text()
    times_s, rates = column(text, "time [s]"), column(text, f"{network} [Mbit/s]")
    pieces = np.split(np.arange(len(times_s)), np.flatnonzero(np.diff(times_s) > 2) + 1)
    return [
        even(f"{network}, drive {at + 1}", 1.0, downlink_rate=rates[rows])
        for at, rows in enumerate(pieces)
        if len(rows) >= MIN_FLIGHT_S
    ]


def drone(folder: Path, place: str) -> list[Flight]:
    """Returns a drone's rates in one direction, by recording."""
    way = "uplink" if place.endswith("up") else "downlink"
    return [
        even(f"{place}, recording {at + 1}", 1.0, **{f"{way}_rate": rates})
        for at, rates in enumerate(drone_recordings(folder, f"{place}link"))
    ]


def road(folder: Path) -> list[Flight]:
    """Returns rates of a dish on a car in Germany, by drive; a pause of more than ten minutes begins a new drive."""
    rows = list(csv.DictReader((folder / "osnabrueck_mobile_starlink/road/iperf.csv").open()))
    starts_s = np.array([np.datetime64(row["timestamp_start"]).astype("datetime64[s]").astype(float) for row in rows])
    table = np.array([[float(row[name] or "nan") for name in ("download_mbps", "upload_mbps")] for row in rows])
    known = np.isfinite(table).all(axis=1)
    starts_s, table = starts_s[known], table[known]
    pieces = np.split(np.arange(len(starts_s)), np.flatnonzero(np.diff(starts_s) > 600) + 1)
    return [
        even(f"road {at + 1}", 1.0, downlink_rate=table[own, 0], uplink_rate=table[own, 1])
        for at, own in enumerate(pieces)
        if len(own) >= MIN_FLIGHT_S
    ]


def motorway(folder: Path) -> list[Flight]:
    """Returns rates of a dish on a motorway."""
    text = (folder / "osnabrueck_mobile_starlink/autobahn/throughput.csv").read_text()
    down, up = column(text, "download"), column(text, "upload")
    known = np.isfinite(down) & np.isfinite(up)
    return [even("motorway", 1.0, downlink_rate=down[known], uplink_rate=up[known])]


def pings(folder: Path, carrier: str) -> list[Flight]:
    """Returns pings of a carrier in bursts of 30 s, several bursts per flight."""
    root = folder / "pam2025_multicarrier_ping/trip2_05_13_2023/app" / carrier
    read = sorted((read_ping(path) for path in root.rglob("*.out")), key=lambda burst: burst.start_epoch_ms)
    found = []
    for start in range(0, len(read) - PAM_GROUP + 1, PAM_GROUP):
        rtts = [rtt for burst in read[start : start + PAM_GROUP] for rtt in settled(burst)]
        values = np.array([np.inf if rtt is None else rtt / 2 for rtt in rtts])
        found.append(even(f"{carrier} {start}", 0.2, delay=values))
    return found


def control(folder: Path, place: str) -> list[Flight]:
    """Returns control messages of a car over 5G."""
    found = []
    for path in sorted((folder / "cicv5g_rtt" / place).glob("*.txt")):
        table = np.genfromtxt(path, skip_header=1, usecols=(0, 2))
        keep = np.concatenate([[True], np.diff(np.maximum.accumulate(table[:, 0])) > 0])
        times_s = (table[keep, 0] - table[0, 0]) / 1e3
        found.append(flight(path.stem, times_s, delay=table[keep, 1] / 2))
    return found


def ship(folder: Path) -> list[Flight]:
    """Returns round trip and loss of a dish on a ship, second by second."""
    rtts, drops = read_dish(folder)
    rtts = np.where(np.isfinite(rtts) & (rtts > 0), rtts, np.inf)
    whole = even("ship", 1.0, delay=rtts / 2, loss=100 * (1 - np.sqrt(1 - drops)))
    return [whole]


def leocc(folder: Path) -> list[Flight]:
    """Returns the one-way delay of a dish every 10 ms, in runs of two minutes."""
    files = sorted((folder / "leocc_starlink/A_download_delay").rglob("delay_*.txt"))
    return [even(path.stem, 0.01, delay=np.loadtxt(path)) for path in files]


def fixed_dish(folder: Path, name: str) -> list[Flight]:
    """Returns pings of a fixed dish; -1 in the file is a lost probe."""
    (path,) = (folder / "aux_mmsys24_starlink").glob(f"*ping-gw-{name}*.txt")
    table = np.loadtxt(path)
    keep = np.concatenate([[True], np.diff(np.maximum.accumulate(table[:, 0])) > 0])
    rtts = np.where(table[keep, 2] < 0, np.inf, table[keep, 2])
    return [flight(name, table[keep, 0], delay=rtts / 2)]


def testbed(folder: Path) -> list[Flight]:
    """Returns rates and latency of the testbed of Baltaci et al. 2023."""
    names = {"downlink_rate": "bitrate_dl", "uplink_rate": "bitrate_ul", "uplink_delay": "latency_ul"}
    read = {
        key: np.genfromtxt(folder / f"baltaci2023_inputs/{name}.csv", delimiter=",")[:, 1]
        for key, name in names.items()
    }
    return [even("testbed", 1.0, **read)]


def opportunities(folder: Path, name: str) -> list[Flight]:
    """Returns the capacity of both directions from mahimahi's opportunities."""
    read = {
        f"{way}link_rate": traces.read(folder / f"aux_mahimahi_lte/{name}.{way}", format="mahimahi").values
        for way in ("up", "down")
        if (folder / f"aux_mahimahi_lte/{name}.{way}").exists()
    }
    count = min(len(values) for values in read.values())
    return [even(name, 0.1, **{key: values[:count] for key, values in read.items()})]


def irish(folder: Path) -> list[Flight]:
    """Returns downloads of a car over 5G in Ireland."""
    return [even(name, 1.0, downlink_rate=rates) for name, rates in nr_rates(folder) if len(rates) >= MIN_FLIGHT_S]


SETS: dict[str, Callable[[Path], Sequence[Flight]]] = {
    **{f"car {name}": lambda folder, name=name: conext(folder, name) for name in ("att", "tmobile", "verizon")},
    "car starlink": lambda folder: conext(folder, "starlink"),
    "road starlink": road,
    "motorway starlink": motorway,
    **{
        f"drone {place}": lambda folder, place=place: drone(folder, place)
        for place in ("urban_p2_up", "urban_p2_down", "rural_p1_up", "rural_p1_down")
    },
    **{f"ping {name}": lambda folder, name=name: pings(folder, name) for name in PAM_CARRIERS},
    **{
        f"5g {place}": lambda folder, place=place: control(folder, place)
        for place in ("arterial_n8_v80", "urban_n8_v30", "urban_n78_v30", "w2s_n8_v30", "w2s_n8_v50", "rural")
    },
    "5g irish": irish,
    "ship starlink": ship,
    "leocc starlink": leocc,
    "fixed starlink lagos": lambda folder: fixed_dish(folder, "lagos"),
    "fixed starlink seattle": lambda folder: fixed_dish(folder, "seattle"),
    "testbed lte": testbed,
    **{
        f"mahimahi {name}": lambda folder, name=name: opportunities(folder, name)
        for name in ("ATT-LTE-driving-2016", "TMobile-LTE-short", "Verizon-LTE-short")
    },
}
"""Readers of the sets."""
