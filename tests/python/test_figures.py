"""Figures of experiments: their forms, what they show, and the looks of what they compare."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from skybraid._core import registry
from skybraid.show.plots.style import looks
from skybraid_studies import Study, reproduce
from skybraid_studies.engine import figure
from skybraid_studies.engine.claims import Line
from skybraid_studies.engine.experiment import FORMS
from skybraid_studies.engine.reproducing import judged
from skybraid_studies.engine.reproducing import selection as errand_of
from skybraid_studies.engine.runner import plan, run_plan
from test_reproduce import CASES, claim_file, place

__all__ = ["place"]


def drawn(place: Path, form: str, kind: str = "ratio", *, times: bool = False) -> Figure:
    text = claim_file(kind, CASES[kind][0]).replace('sweep = "rates"', f'sweep = "rates"\ndraw = "{form}"')
    (place / "nobody2026" / "NOB-E04.toml").write_text(text, encoding="utf-8")
    study = Study(place / "nobody2026")
    experiment = study.experiments()["NOB-E04"]
    of = errand_of(study, ["NOB-E04"])
    planned = plan([of])
    run_plan(planned)
    return figure.draw(experiment, judged(planned, of, 0.0).lines["NOB-E04"])


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_figure_shows_every_series(place: Path, form: str) -> None:
    (axes,) = drawn(place, form).axes
    names = ["A", "B", "C", "D", "F", "E 1", "E 5", "P"]
    if form in ("lines", "cdf"):
        assert axes.get_legend_handles_labels()[1] == [*names, "published"]
    else:
        found = " ".join(label.get_text() for label in axes.get_yticklabels())
        assert all(name in found for name in names)


def test_a_line_has_the_means_its_band_and_the_published_points(place: Path) -> None:
    (axes,) = drawn(place, "lines").axes
    assert axes.get_xscale() == "log"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "kbit/s")
    by_name = {str(line.get_label()): line for line in axes.get_lines()}
    means = np.asarray(by_name["A"].get_ydata(), dtype=float)
    assert means == pytest.approx([98, 196, 294], rel=0.03)
    hollow = [line for line in axes.get_lines() if line.get_markerfacecolor() == "none" and np.size(line.get_xdata())]
    assert [np.asarray(line.get_ydata()).tolist() for line in hollow] == [[100, 200, 300]]
    assert hollow[0].get_color() == by_name["P"].get_color()
    assert len(axes.collections) == 8


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('sweep = "rates"', "lines"),
        ("", "bars"),
        ('sweep = { label = "share", values = [0.1, 0.9] }', "cdf"),
        ('times = { until = "2s", every = "1s" }', "lines"),
    ],
)
def test_the_form_comes_from_the_shape_of_the_sweep(place: Path, text: str, form: str) -> None:
    measure = 'measure = { kind = "delay_quantile", flow = "a", q = "{x}" }' if form == "cdf" else ""
    (place / "nobody2026" / "NOB-E05.toml").write_text(
        f'figure = "Fig. 1"\nfinding = "…"\n{text}\n[series.A]\nuse = "a"\n{measure}\n', encoding="utf-8"
    )
    assert figure.form(Study(place / "nobody2026").experiments()["NOB-E05"]) == form


def test_a_figure_that_is_there_is_not_drawn_again(place: Path, tmp_path: Path) -> None:
    study = Study(place / "nobody2026")
    (row,) = reproduce(study, ["NOB-E01"], out=tmp_path / "out").rows
    file = Path(row.figure_file)
    before = file.stat().st_mtime_ns
    assert file.with_suffix(".png").is_file()
    reproduce(study, ["NOB-E01"], out=tmp_path / "out")
    assert file.stat().st_mtime_ns == before
    reproduce(study, ["NOB-E01"], quick=True, out=tmp_path / "out")
    assert file.stat().st_mtime_ns > before
    assert "(quick look)" in file.read_text(encoding="utf-8")


def line(name: str) -> Line:
    return Line(name, (1.0, 2.0), np.array([[1.0, 2.0], [1.5, 2.5]]), {})


def test_algorithms_look_as_they_do_everywhere() -> None:
    found = figure._looks([line("NewReno"), line("NewReno, LTE"), line("Cubic"), line("wvegas")])
    known = looks("congestion", [entry["name"] for entry in registry("congestion")])
    names = ("reno", "reno", "cubic", "wvegas")
    assert [(entry["color"], entry["marker"]) for entry in found] == [
        (known[name].colour, known[name].marker) for name in names
    ]
    assert found[0]["linestyle"] != found[1]["linestyle"]


def test_series_of_other_names_differ_by_their_place() -> None:
    found = figure._looks([line("TCP 1"), line("TCP 5"), line("Cubic")])
    assert len({(entry["color"], entry["marker"]) for entry in found}) == 3
