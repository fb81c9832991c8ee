"""What users may set, declared once: the tables that everything else is made from.

Command line, variables, configuration file, bounds, reports, replay line and docs/options.md come
from these rows.  They are plain data: no click, no configuration, nothing slow to import.
"""
