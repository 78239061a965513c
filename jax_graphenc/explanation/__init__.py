"""What a function's kernels become: the report of ``jge.explain``.

In order of dependence: ``data`` is what is reported, ``groups`` finds what repeats, ``text`` and
``dot`` show it, and ``explain`` finds the programs of a function.
"""
