"""Import of the optional PyAV (FFmpeg's codecs), with an error that explains its installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skybraid.model.heavy import late_imports

if TYPE_CHECKING:
    import av
else:
    globals().update(late_imports(__file__))
