"""Pictures of the built-in clips: a flight over fields and hills to a runway, rendered per pixel.

The ray of each pixel is intersected with a horizontal plane at the local height of the ground. This height is found on
a grid of every fourth pixel; divided by the ray's slope, which is linear in the picture, it gives the position on the
ground for each pixel. Values per pixel are float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from skybraid.model.heavy import interpolate, np
from skybraid.video import terrain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Rays = tuple[Floats, Floats, Floats]

RENDERER = 1
"""Version of the renderer; increased when the pictures change."""

DURATION_S = 30.0

_GRAVITY = 9.81
_FOCAL = 0.65
_HAZE_M = 2200.0
_HAZE = (186.0, 136.0, 124.0)
_SKY = (150.0, 158.0, 112.0)
_CLOUDS_M = 900.0
_ROWS = 32
_STEP = 4


class _Pose(NamedTuple):
    """Pose of the camera: position, and its right, front and top axes, in east, north, up."""

    east_m: float
    north_m: float
    up_m: float
    right: NDArray[np.float64]
    front: NDArray[np.float64]
    top: NDArray[np.float64]


@cache
def _course() -> tuple[interpolate.CubicSpline, interpolate.CubicSpline, interpolate.PchipInterpolator]:
    """Returns the course in m (east, north, up) over time in s."""
    return (
        interpolate.CubicSpline((0, 6, 12, 18, 24, 27, 30), (0, 40, -30, 30, 0, 0, 0), bc_type="clamped"),
        interpolate.CubicSpline((0, 12, 24, 28, 30), (0, 350, 690, 785, 825)),
        interpolate.PchipInterpolator((0, 5, 11, 17, 21, 25, 28, 30), (60, 105, 60, 95, 70, 22, 2.5, 1.5)),
    )


def _pose(time_s: float) -> _Pose:
    """Returns the pose in a coordinated turn (tan roll = speed · turn rate / g), with some turbulence."""
    to_east, to_north, up = _course()
    east, north = float(to_east(time_s, 1)), float(to_north(time_s, 1))
    speed = math.hypot(east, north)
    turn = (north * float(to_east(time_s, 2)) - east * float(to_north(time_s, 2))) / speed
    height_m = float(up(time_s))
    airy = min(1.0, height_m / 20)
    yaw = math.atan2(east, north)
    roll = math.atan2(turn, _GRAVITY) + airy * math.radians(
        0.9 * math.sin(5.1 * time_s) + 0.5 * math.sin(12.7 * time_s)
    )
    pitch = math.radians(-14.0 + 0.5 * math.sin(6.3 * time_s) * airy) + 0.5 * math.atan2(float(up(time_s, 1)), speed)
    front = np.array((math.sin(yaw) * math.cos(pitch), math.cos(yaw) * math.cos(pitch), math.sin(pitch)))
    level = np.array((math.cos(yaw), -math.sin(yaw), 0.0))
    upright = np.cross(level, front)
    right = math.cos(roll) * level - math.sin(roll) * upright
    return _Pose(float(to_east(time_s)), float(to_north(time_s)), height_m, right, front, np.cross(right, front))


@dataclass(frozen=True)
class Flight:
    """Renderer of the flight's pictures.

    Attributes:
        width: width of a picture in pixels, a multiple of 4.
        height: height of a picture in pixels, even.
    """

    width: int
    height: int

    @cached_property
    def _hills(self) -> tuple[terrain.Surface, Floats]:
        return terrain.hills()

    @cached_property
    def _ground(self) -> tuple[terrain.Surface, terrain.Surface]:
        return terrain.ground(0.25 * self._coarseness, self._hills[1])

    @cached_property
    def _near(self) -> terrain.Surface:
        return terrain.grain(512, 1.4, 6, 0.03 * self._coarseness)

    @cached_property
    def _clouds(self) -> terrain.Surface:
        return terrain.grain(512, 3.2, 7, 8.0)

    @property
    def _focal(self) -> float:
        """Focal length in pixels, for a view 75° wide."""
        return self.width * _FOCAL

    @property
    def _coarseness(self) -> int:
        """Size of a texel relative to a picture of 1920 pixels: 1, 2, 4 or 8."""
        return int(min(8, 2 ** max(0, round(math.log2(1920 / self.width)))))

    def picture(self, time_s: float) -> NDArray[np.uint8]:
        """Renders the picture at a time from 0 to `DURATION_S` as planes Y, Cb, Cr, shape (1.5 · height, width)."""
        pose = _pose(time_s)
        drawn = np.empty((self.height * 3 // 2, self.width), np.uint8)
        chroma = drawn[self.height :].reshape(2, self.height // 2, self.width // 2)
        above_m = self._above(pose)
        for first in range(0, self.height, _ROWS):
            last = min(first + _ROWS, self.height)
            near_m = _enlarged(above_m[first // _STEP :], last - first)
            rays = self._rays(pose, first, last, 1)
            halved = self._rays(pose, first, last, 2)
            lit, tinted = drawn[first:last], chroma[:, first // 2 : last // 2]
            if rays[2].min() < 0:
                lit[:], tinted[:] = self._land(pose, rays, halved, near_m)
            if rays[2].max() >= 0:
                up = rays[2] >= 0
                bright, colours = self._sky(rays, halved)
                lit[up] = bright[up]
                np.copyto(tinted, colours, where=halved[2] >= 0)
        return drawn

    def _rays(self, pose: _Pose, first: int, last: int, pixel: int) -> Rays:
        """Returns the rays through the centres of pixels (squares of `pixel` by `pixel`) of some rows."""
        middle = (pixel - 1) / 2
        return self._through(pose, np.arange(0, self.width, pixel) + middle, np.arange(first, last, pixel) + middle)

    def _through(self, pose: _Pose, columns: Floats, rows: Floats) -> Rays:
        """Returns rays in east, north, up, scaled to unit length along the camera's axis."""
        right = ((columns - (self.width - 1) / 2) / self._focal).astype(np.float32)
        down = ((rows - (self.height - 1) / 2) / self._focal).astype(np.float32)[:, np.newaxis]
        east, north, up = (
            np.float32(front) + right * np.float32(to_right) - down * np.float32(to_top)
            for front, to_right, to_top in zip(pose.front, pose.right, pose.top, strict=True)
        )
        return east, north, up

    def _above(self, pose: _Pose) -> Floats:
        """Returns the height of the camera above the visible ground in m, at every fourth pixel plus one."""
        columns, rows = (np.arange(0.0, length + 2 * _STEP, _STEP) for length in (self.width, self.height))
        east, north, up = self._through(pose, columns[: self.width // _STEP + 1], rows)
        fall = np.maximum(-up, np.float32(0.002))
        firm = np.minimum(fall * 6, np.float32(1)) * np.float32(terrain.HILL_M / 255)
        above = np.full(fall.shape, pose.up_m, np.float32)
        for _ in range(4):
            along = above / fall
            x, y = pose.east_m + along * east, pose.north_m + along * north
            (hill,) = self._hills[0].at(x, y, along * np.float32(_STEP / self._focal))
            above = np.maximum(pose.up_m - firm * hill, np.float32(0.5))
        return above

    def _land(
        self, pose: _Pose, rays: Rays, halved: Rays, above_m: Floats
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        east, north, pixel, away = self._places(pose, rays, above_m, 1)
        (luma,) = self._ground[0].at(east, north, pixel)
        if pixel.min() < 1.0 * self._coarseness:
            (near,) = self._near.at(east, north, pixel)
            luma += (near - np.float32(128)) * np.float32(0.2)
        luma += (np.float32(_HAZE[0]) - luma) * (away / (away + np.float32(_HAZE_M)))
        east, north, pixel, away = self._places(pose, halved, above_m[::2, ::2], 2)
        colours = np.stack(self._ground[1].at(east, north, pixel))
        haze = away / (away + np.float32(_HAZE_M))
        for colour, far in zip(colours, _HAZE[1:], strict=True):
            colour += (np.float32(far) - colour) * haze
        return terrain.to_bytes(luma), terrain.to_bytes(colours)

    def _places(self, pose: _Pose, rays: Rays, above_m: Floats, step: int) -> tuple[Floats, Floats, Floats, Floats]:
        """Returns the intersections of rays with the ground: east, north, pixel width and distance, all in m."""
        fall = np.maximum(-rays[2], np.float32(1e-4))
        along = above_m / fall
        # A pixel is longer along a flat ray than across; a texel size in between blurs and flickers least.
        pixel = along * np.float32(step / self._focal) / np.sqrt(np.minimum(fall, np.float32(1)))
        return np.float32(pose.east_m) + along * rays[0], np.float32(pose.north_m) + along * rays[1], pixel, along

    def _sky(self, rays: Rays, halved: Rays) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Renders haze at the horizon, blue above, and clouds that fade with distance."""
        cloud, blue = self._weather(rays)
        luma = np.float32(_HAZE[0]) + np.float32(_SKY[0] - _HAZE[0]) * blue
        luma += cloud * (np.float32(225) - luma)
        cloud, blue = self._weather(halved)
        colours = np.stack([far + (high - far) * blue for far, high in zip(_HAZE[1:], _SKY[1:], strict=True)])
        colours += cloud * (np.float32(128) - colours)
        return terrain.to_bytes(luma), terrain.to_bytes(colours)

    def _weather(self, rays: Rays) -> tuple[Floats, Floats]:
        """Returns the cloud cover of each pixel and the blueness of the sky, both from 0 to 1."""
        rise = np.maximum(rays[2], np.float32(1e-3))
        along = np.float32(_CLOUDS_M) / rise
        (cloud,) = self._clouds.at(along * rays[0], along * rays[1], along * np.float32(4 / self.width))
        thick = np.clip((cloud - np.float32(130)) * np.float32(1 / 90), 0, 1)
        return thick * (np.float32(1) - along / (along + np.float32(6 * _HAZE_M))), np.minimum(rise * 3, np.float32(1))


def _enlarged(coarse: Floats, rows: int) -> Floats:
    """Interpolates values at every fourth pixel linearly to every pixel."""
    share = (np.arange(_STEP, dtype=np.float32) / _STEP)[:, np.newaxis]
    lines = -(-rows // _STEP)
    tall = coarse[:lines, np.newaxis] * (1 - share) + coarse[1 : lines + 1, np.newaxis] * share
    tall = tall.reshape(lines * _STEP, -1)[:rows]
    wide = tall[:, :-1, np.newaxis] * (1 - share[:, 0]) + tall[:, 1:, np.newaxis] * share[:, 0]
    return wide.reshape(rows, -1)
