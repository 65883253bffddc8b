"""The commands of the shell, one module per subject.

Importing this package fills the table of commands. Help lists the subjects in the order below.
"""

from importlib import import_module

for _subject in (
    "topics",
    "replicas",
    "producers",
    "groups",
    "consumers",
    "history",
    "views",
    "faults",
    "disks",
    "control",
):
    import_module(f"{__name__}.{_subject}")
