"""Commands that this distribution adds to `skybraid` by entry points."""

from skybraid.cli import Entry

REPRODUCE = Entry(
    "skybraid_studies.command:reproduce",
    "Run the experiments of published studies and report which of their findings hold.",
)

IMPORT_LINES = Entry(
    "skybraid_studies.chavali2022.command:import_lines", "Convert scenario lines of Chavali's testbed to scenarios."
)
