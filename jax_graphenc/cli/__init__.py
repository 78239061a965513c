"""The commands of ``python -m jax_graphenc``.

A command's module has ``add_parser(subparsers)``, which adds a parser. Its default ``run`` is a
function from the parsed arguments to the exit status; its default ``parser`` is the parser itself.
"""
