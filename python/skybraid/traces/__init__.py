"""Read, describe, draw, convert, import and join traces of rate, delay, loss and round-trip time.

A trace is step-wise: a value holds from its time until the next one, the last value as long as the step before it. Text
formats that scenarios read are parsed by their Rust readers; the others are in `skybraid.traces.formats`.
`docs/traces.md` describes them.
"""

from skybraid.traces import formats
from skybraid.traces.drawing import plot
from skybraid.traces.files import MAX_BYTES
from skybraid.traces.importing import import_files, join, load, read, save
from skybraid.traces.measurement import Column, MeasuredTrack, Measurement
from skybraid.traces.reading import FORMATS, Format
from skybraid.traces.series import DEADLINE_MS, UNIT_OF, Quantity, Trace, TraceError, TraceStats, stats
from skybraid.traces.writing import OUTPUT_FORMATS, OutputFormat, opportunities_ms, write

__all__ = [
    "DEADLINE_MS",
    "FORMATS",
    "MAX_BYTES",
    "OUTPUT_FORMATS",
    "UNIT_OF",
    "Column",
    "Format",
    "MeasuredTrack",
    "Measurement",
    "OutputFormat",
    "Quantity",
    "Trace",
    "TraceError",
    "TraceStats",
    "formats",
    "import_files",
    "join",
    "load",
    "opportunities_ms",
    "plot",
    "read",
    "save",
    "stats",
    "write",
]
