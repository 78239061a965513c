"""What a function's kernels become: the report of ``jge.explain``.

In order of dependence: ``data`` describes programs, ``groups`` finds repetitions, ``text`` and
``dot`` show them, and ``explain`` finds the programs of a function.
"""
