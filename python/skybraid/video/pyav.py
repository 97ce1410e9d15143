"""Import of the optional PyAV (FFmpeg's codecs), with an error that says how to install it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skybraid.model.errors import VideoError
from skybraid.model.heavy import Late

if TYPE_CHECKING:
    import av
else:
    av = Late("av", VideoError("video: found no package av, expected it with pip install 'skybraid[video]'"))

__all__ = ["av"]
