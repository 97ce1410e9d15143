"""Opens the results of sweeps and runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skybraid.execute.campaign import Campaign
from skybraid.execute.store import Store
from skybraid.model.errors import ResultError, meant_by
from skybraid.model.folder import MANIFEST
from skybraid.model.results import Results

_SUMMARY = "summary.json"
"""File that makes a folder a result."""


def open_results(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Campaign | Results:
    """Opens the output of `sweep` (a `Campaign`) or of `run` (a `Results`).

    Args:
        url: path of the folder; for a campaign also any URL of fsspec.
        storage_options: options of fsspec for the URL.

    Raises:
        ResultError: there is no campaign or result, or it is damaged.
    """
    # A local result needs no fsspec, which takes 0.1 s to import.
    folder = Path(os.fspath(url).removeprefix("file://")).expanduser()
    if (folder / _SUMMARY).exists() and not (folder / MANIFEST).exists():
        return Results.open(folder)
    store = Store.at(url, storage_options)
    if store.read(MANIFEST) is not None:
        return Campaign.at(store)
    if store.local and folder.is_file():
        makes = f"; `skybraid run {store.url}` makes a result" if store.url.endswith(".toml") else ""
        raise ResultError(f"{store.url}: found a file, expected the folder of a campaign or a result{makes}")
    if store.local and not folder.exists():
        meant = meant_by(Path(store.url))
        raise ResultError(f"{store.url}: found no such folder, expected a campaign or a result{meant}")
    raise ResultError(f"{store.url}: found neither {MANIFEST} nor {_SUMMARY}, expected a campaign or a result")


def opened_campaign(url: str | os.PathLike[str]) -> Campaign:
    """Opens a campaign, finished or not.

    Raises:
        ResultError: there is no campaign, or it is damaged.
    """
    return Campaign.at(Store.at(url))
