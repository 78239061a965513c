"""The commands of ``python -m jax_graphenc``.

A module has ``add_parser(subparsers)``, which adds a parser whose default ``run`` is a function
from the parsed arguments to the exit status, and default ``parser`` is itself.
"""
