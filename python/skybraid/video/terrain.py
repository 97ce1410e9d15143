"""Ground and clouds of the built-in clips: periodic textures generated from seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skybraid.model.heavy import fft, ndimage, np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Bytes = NDArray[np.uint8]

TILE_M = 1024
"""Period of the ground in m, east and north."""

HILL_M = 25.0
"""Height of the highest hill in m."""

RUNWAY = (700.0, 940.0)
"""Start and end of the runway in m north; its centre line is at 0 m east."""

_FIELDS = 22
_COARSE = 512
_SEED = 20_260_101


class Surface:
    """Periodic textures over a plane with mip levels, sampled bilinearly.

    Every entry has a texel with its three neighbours east and north, so that one access reads all four.
    """

    def __init__(self, *pictures: Bytes, texel_m: float) -> None:
        """Pictures have the same square shape, a power of two; one texel is `texel_m` wide."""
        self._texel_m = texel_m
        self._order = pictures[0].shape[0].bit_length() - 1
        levels = np.arange(self._order + 1)
        sizes = 4 ** (self._order - levels)
        self._first = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int32)
        self._per_m = (1 / (texel_m * 2.0**levels)).astype(np.float32)
        self._packed = [_pyramid(picture) for picture in pictures]

    def at(self, east_m: Floats, north_m: Floats, pixel_m: Floats) -> list[Floats]:
        """Samples the textures, 0 to 255, for pixels of width `pixel_m`."""
        level = np.frexp(pixel_m * np.float32(1 / self._texel_m))[1] - np.int32(1)
        np.clip(level, 0, self._order, out=level)
        scale = self._per_m.take(level)
        x, y = east_m * scale, north_m * scale
        column, row = np.floor(x), np.floor(y)
        x -= column
        y -= row
        order = np.int32(self._order) - level
        mask = np.left_shift(np.int32(1), order) - np.int32(1)
        index = ((row.astype(np.int32) & mask) << order) + (column.astype(np.int32) & mask)
        index += self._first.take(level)
        return [_blend(packed.take(index), x, y) for packed in self._packed]


def _blend(packed: NDArray[np.uint32], x: Floats, y: Floats) -> Floats:
    corner = np.ascontiguousarray(packed).view(np.uint8).reshape(*packed.shape, 4)
    south, east = corner[..., 0].astype(np.float32), corner[..., 1].astype(np.float32)
    south += (east - south) * x
    north, east = corner[..., 2].astype(np.float32), corner[..., 3].astype(np.float32)
    north += (east - north) * x
    south += (north - south) * y
    return south


def _pyramid(picture: Bytes) -> NDArray[np.uint32]:
    levels = []
    while True:
        corners = [np.roll(picture, shift, (0, 1)) for shift in ((0, 0), (0, -1), (-1, 0), (-1, -1))]
        levels.append(np.stack(corners, axis=-1).view("<u4").ravel())
        if len(picture) == 1:
            return np.concatenate(levels)
        quarters = picture.astype(np.uint16)
        total = quarters[::2, ::2] + quarters[1::2, ::2] + quarters[::2, 1::2] + quarters[1::2, 1::2]
        picture = ((total + 2) >> 2).astype(np.uint8)


def hills() -> tuple[Surface, Floats]:
    """Returns the height of the ground as a surface (255 is `HILL_M`) and in m on a grid of 2 m; flat at the runway."""
    texel_m = TILE_M / _COARSE
    places = (np.arange(_COARSE, dtype=np.float32) + 0.5) * np.float32(texel_m)
    east = (places + TILE_M / 2) % TILE_M - TILE_M / 2
    north = places - np.clip(places, *RUNWAY)
    away = np.hypot(east[np.newaxis, :], north[:, np.newaxis])
    slope = np.clip((away - 60) / 180, 0, 1)
    height = noise(_COARSE, 4.0, 1) * slope * slope * (3 - 2 * slope)
    rounded = to_bytes(255 * height)
    return Surface(rounded, texel_m=texel_m), rounded.astype(np.float32) * np.float32(HILL_M / 255)


def ground(texel_m: float, height_m: Floats) -> tuple[Surface, Surface]:
    """Returns luma, and chromas at half resolution, of fields, hedges, woods, a river, a road, houses and a runway."""
    size = round(TILE_M / texel_m)
    luma, blue, red = (np.empty((size, size), np.float32) for _ in range(3))
    east = (np.arange(size, dtype=np.float32) + np.float32(0.5)) * np.float32(texel_m)
    wood = _enlarged(noise(_COARSE, 3.0, 2), size)
    grain = noise(size, 2.0, 3)
    sunlit = _enlarged(_sunlit(height_m), size)
    for first in range(0, size, 64):
        rows = slice(first, first + 64)
        colours = _fields(east, east[rows, np.newaxis], wood[rows], grain[rows])
        luma[rows], blue[rows], red[rows] = colours
        luma[rows] *= sunlit[rows]
    _houses(luma, blue, red, texel_m)
    _runway(luma, blue, red, east)
    halves = [to_bytes(chroma.reshape(size // 2, 2, size // 2, 2).mean((1, 3))) for chroma in (blue, red)]
    return Surface(to_bytes(luma), texel_m=texel_m), Surface(*halves, texel_m=2 * texel_m)


def grain(size: int, beta: float, seed: int, texel_m: float) -> Surface:
    """Returns noise around 128 as a surface, for grass and gravel nearby, or for clouds."""
    return Surface(to_bytes(255 * noise(size, beta, seed)), texel_m=texel_m)


def noise(size: int, beta: float, seed: int) -> Floats:
    """Returns periodic noise from 0 to 1 in all octaves, whose power falls with frequency to the power of `beta`."""
    white = np.random.default_rng((_SEED, seed)).standard_normal((size, size), dtype=np.float32)
    spectrum = fft.rfft2(white)
    waves = np.hypot(fft.fftfreq(size, 1 / size)[:, np.newaxis], fft.rfftfreq(size, 1 / size)).astype(np.float32)
    waves[0, 0] = 1
    spectrum *= waves ** np.float32(-beta / 2)
    spectrum[0, 0] = 0
    shape = fft.irfft2(spectrum, (size, size))
    scaled: Floats = np.clip(0.5 + shape * np.float32(0.2 / shape.std()), 0, 1)
    return scaled


def to_bytes(values: Floats) -> Bytes:
    """Rounds values to 0 to 255."""
    rounded: Bytes = np.clip(values + np.float32(0.5), 0, 255).astype(np.uint8)
    return rounded


def _enlarged(coarse: Floats, size: int) -> Floats:
    fine: Floats = ndimage.zoom(coarse, size / len(coarse), order=1, mode="grid-wrap", grid_mode=True)
    return fine


def _sunlit(height_m: Floats) -> Floats:
    """Returns the brightness of slopes with the sun in the south-west."""
    rise = np.roll(height_m, -1, 0) - np.roll(height_m, 1, 0) + np.roll(height_m, -1, 1) - np.roll(height_m, 1, 1)
    return np.clip(1 + rise * np.float32(0.3), 0.6, 1.35)


def _fields(east: Floats, north: Floats, wood: Floats, grain: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns luma and chromas of some rows: each point belongs to the field of the nearest centre (jittered grid)."""
    rng = np.random.default_rng((_SEED, 4))
    cell = np.float32(TILE_M / _FIELDS)
    middle = rng.uniform(0.1, 0.9, (2, _FIELDS, _FIELDS)).astype(np.float32)
    kinds = np.array([[112, 106, 126], [96, 110, 120], [138, 98, 134], [84, 112, 122], [122, 112, 136]], np.float32)
    colour = kinds[rng.integers(0, len(kinds), (_FIELDS, _FIELDS))] + rng.normal(0, 5, (_FIELDS, _FIELDS, 3))
    angle = rng.uniform(0, np.pi, (_FIELDS, _FIELDS))
    across = (2 * np.pi / 3.2 * np.stack((np.cos(angle), np.sin(angle)))).astype(np.float32)
    column, row = np.floor(east / cell).astype(np.int32), np.floor(north / cell).astype(np.int32)
    nearest = np.full((len(north), len(east)), np.inf, np.float32)
    second, stripes = nearest.copy(), np.zeros_like(nearest)
    which = np.zeros(nearest.shape, np.int32)
    for up in (-1, 0, 1):
        for right in (-1, 0, 1):
            x, y = (column + right) % _FIELDS, (row + up) % _FIELDS
            away_x = east - (column + right + middle[0][y, x]) * cell
            away_y = north - (row + up + middle[1][y, x]) * cell
            away = np.abs(away_x) + np.abs(away_y)
            nearer = away < nearest
            second = np.minimum(second, np.maximum(away, nearest))
            nearest = np.where(nearer, away, nearest)
            which = np.where(nearer, y * _FIELDS + x, which)
            stripes = np.where(nearer, away_x * across[0][y, x] + away_y * across[1][y, x], stripes)
    luma, blue, red = (colour.reshape(-1, 3)[:, part].astype(np.float32)[which] for part in range(3))
    luma += np.float32(5) * np.sin(stripes) + np.float32(40) * (grain - np.float32(0.5))
    hedge = second - nearest
    woods = wood > 0.62
    river = np.abs(east - (700 + 90 * np.sin(north * np.float32(4 * np.pi / TILE_M) + 1)))
    road = np.abs(east - (150 + 60 * np.sin(north * np.float32(2 * np.pi / TILE_M))))
    marks = (road < 0.2) & (north % 9 < 4) | (np.abs(road - 3.2) < 0.15)
    for where, shade, b, r in (
        (hedge < 3.5, 58 + 50 * (grain - 0.5), 118, 122),
        (woods, 50 + 100 * (grain - 0.5), 118, 121),
        (river < 11, 74 + 25 * (grain - 0.5), 140, 118),
        (road < 3.6, 118 + 12 * (grain - 0.5), 128, 128),
        (marks, np.float32(200), 128, 128),
    ):
        luma, blue, red = np.where(where, shade, luma), np.where(where, b, blue), np.where(where, r, red)
    return luma, blue, red


def _houses(luma: Floats, blue: Floats, red: Floats, texel_m: float) -> None:
    """Draws roofs with their shadows along the road."""
    rng = np.random.default_rng((_SEED, 5))
    for north in np.arange(20, TILE_M - 20, 14):
        if rng.random() < 0.45:
            continue
        middle = 150 + 60 * np.sin(north * 2 * np.pi / TILE_M) + rng.choice((-1, 1)) * rng.uniform(14, 45)
        west, south, wide, deep = middle, float(north), rng.uniform(7, 14), rng.uniform(6, 10)

        def part(west: float, south: float, wide: float, deep: float) -> tuple[slice, slice]:
            rows = slice(round(south / texel_m), round((south + deep) / texel_m))
            return rows, slice(round(west / texel_m), round((west + wide) / texel_m))

        luma[part(west + 2, south + 2, wide, deep)] *= 0.5
        for half, shade in ((0, 1.0), (1, 0.75)):
            roof = part(west, south + half * deep / 2, wide, deep / 2)
            luma[roof], blue[roof], red[roof] = 130 * shade, rng.uniform(112, 126), rng.uniform(135, 160)


def _runway(luma: Floats, blue: Floats, red: Floats, east: Floats) -> None:
    """Draws asphalt with the markings of its centre line, edges and ends."""
    first, last = (int(np.searchsorted(east, place)) for place in RUNWAY)
    north = east[first:last, np.newaxis] - np.float32(RUNWAY[0])
    aside = np.abs((east + TILE_M / 2) % TILE_M - TILE_M / 2)
    columns = aside < 13
    aside = aside[columns]
    length = RUNWAY[1] - RUNWAY[0]
    from_end = np.minimum(north, length - north)
    marks = (aside < 0.45) & (north % 24 < 14) | (np.abs(aside - 11.5) < 0.4)
    marks |= (from_end > 4) & (from_end < 20) & (aside > 1.5) & (aside < 10.5) & (aside % 3 < 1.6)
    shade = luma[first:last][:, columns]
    luma[first:last, columns] = np.where(marks, np.float32(205), 88 + np.float32(0.25) * (shade - 100))
    blue[first:last, columns], red[first:last, columns] = 129, 127
