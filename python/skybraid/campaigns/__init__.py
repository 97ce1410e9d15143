"""Campaigns: a scenario over many points and seeds, into one dataset.

`sweep` flies one, `open_` opens one that has been flown; `docs/campaigns.md` is the guide.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from skybraid.campaigns.axes import Axis, Point
from skybraid.campaigns.dataset import Campaign
from skybraid.campaigns.fly import Status, sweep
from skybraid.campaigns.pairs import Paired, paired
from skybraid.campaigns.store import MANIFEST, Store
from skybraid.errors import ResultError
from skybraid.results import Results

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Axis", "Campaign", "Paired", "Point", "Status", "open_", "paired", "sweep"]


def open_(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Campaign | Results:
    """Opens what `sweep` or `run` left: a `Campaign`, or the `Results` of a single result's folder.

    Args:
        url: a folder's path, or of a campaign any URL of fsspec.
        storage_options: what fsspec wants to know for it.

    Raises:
        ResultError: there is neither, or it is damaged.
    """
    store = Store.at(url, storage_options)
    if store.read(MANIFEST) is not None:
        return Campaign.at(store)
    if not store.local or not os.path.exists(store.place("summary.json")):  # noqa: PTH110 the path is fsspec's
        raise ResultError(f"{store.url}: found neither {MANIFEST} nor summary.json, expected a campaign or a result")
    return Results.open(store.place(""))
