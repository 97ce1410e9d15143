"""PyAV, which brings FFmpeg's codecs, or how to get it."""

from skybraid.errors import VideoError

try:
    import av
except ImportError as error:
    raise VideoError("video: found no package av, expected it with pip install 'skybraid[video]'") from error

__all__ = ["av"]
