"""Opens the results of sweeps and runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.execute.campaign import Campaign
from skybraid.execute.store import MANIFEST, Store
from skybraid.model.errors import ResultError, meant_by
from skybraid.model.results import Results

if TYPE_CHECKING:
    from collections.abc import Mapping


def open_results(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Campaign | Results:
    """Opens the output of `sweep` (a `Campaign`) or of `run` (a `Results`).

    Args:
        url: path of the folder; for a campaign also any URL of fsspec.
        storage_options: options of fsspec for the URL.

    Raises:
        ResultError: there is no campaign or result, or it is damaged.
    """
    store = Store.at(url, storage_options)
    if store.read(MANIFEST) is not None:
        return Campaign.at(store)
    if not store.local or not os.path.exists(store.place("summary.json")):  # noqa: PTH110 the path is fsspec's
        if store.local and os.path.isfile(store.place("").rstrip("/")):  # noqa: PTH113 the path is fsspec's
            makes = f"; `skybraid run {store.url}` makes a result" if store.url.endswith(".toml") else ""
            raise ResultError(f"{store.url}: found a file, expected the folder of a campaign or a result{makes}")
        if store.local and not os.path.exists(store.place("")):  # noqa: PTH110 the path is fsspec's
            meant = meant_by(Path(store.url))
            raise ResultError(f"{store.url}: found no such folder, expected a campaign or a result{meant}")
        raise ResultError(f"{store.url}: found neither {MANIFEST} nor summary.json, expected a campaign or a result")
    return Results.open(store.place(""))


def opened_campaign(url: str | os.PathLike[str]) -> Campaign:
    """Opens a campaign, finished or not.

    Raises:
        ResultError: there is no campaign, or it is damaged.
    """
    return Campaign.at(Store.at(url))
