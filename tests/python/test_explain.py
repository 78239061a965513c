"""What ``jge.explain`` tells, held against what lowering and the encoder do."""

import argparse
import html
import inspect
import random
import re
import shutil
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jax_graphenc as jge
from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.cli import explain as command
from jax_graphenc.cli import specs
from jax_graphenc.compiler import nvrtc_library
from jax_graphenc.explanation.groups import Run, runs
from jax_graphenc.primitives.program import program_p
from jax_graphenc.programs.program import Buffer, Memcpy, Memset, Program

SOURCE = r"""
extern "C" __global__ void axpy(const float* x, const float* y, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
extern "C" __global__ void bump(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
}
"""


def kernel(name, **options):
    return jge.cuda_kernel(
        SOURCE,
        name,
        grid=lambda x, *_, **__: jge.cdiv(x.size, 64),
        block=64,
        values={"n": lambda x, *_, **__: x.size},
        **options,
    )


axpy = kernel("axpy", out_shape=lambda x, *_, **__: x, reference=lambda x, y, *, a, n: a * x + y)
bump = kernel("bump", params={"x": "inout"})
on_reference = kernel(
    "axpy", out_shape=lambda x, *_, **__: x, reference=lambda x, y, *, a, n: a * x + y,
    cpu="reference",
)  # fmt: skip

X = jax.ShapeDtypeStruct((300,), jnp.float32)
ONE = jnp.ones(300, jnp.float32)


def line_of(function, text):
    """Where a text stands in a function, as a report says it."""
    source, first = inspect.getsourcelines(inspect.unwrap(function))
    number = first + next(i for i, line in enumerate(source) if text in line)
    return f"{Path(__file__).name}:{number}"


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)  # for short paths


@jge.graph
def split(x, y):
    u = axpy(x, y, a=1.0)
    aside = jnp.cos(u)  # is XLA's, and splits nothing
    v = jnp.sin(axpy(u, y, a=2.0))
    return axpy(axpy(v, u, a=3.0), y, a=1.0), aside


@jge.graph
def wide(x, y):
    return [axpy(x, y, a=float(i)) for i in range(64)]


@jge.graph
def loop(x, y):
    return jax.lax.fori_loop(0, 200, lambda i, u: axpy(u, y, a=0.5), x)


@jge.graph
def partly_looped(x, y):
    def step(u, _):
        u = jnp.sin(bump(axpy(u, y, a=1.0)))
        return axpy(u, y, a=2.0), None

    x, _ = jax.lax.scan(step, bump(jnp.tanh(x)), length=10)
    return jax.lax.cond(x[0] > 0, lambda: axpy(x, y, a=2.0), lambda: bump(x))


def user(x, y):
    return bump(loop(x, axpy(x, y, a=2.0)))


def mixed(x, y):
    axpy(y, y, a=1.0)  # its result is unused
    return jnp.sum(axpy(x, jnp.sin(y), a=2.0) ** 2) + jnp.sum(axpy(y, x, a=3.0))


def encoded_in(lowered):
    """The bytes of each program in a module, out of its text."""
    quoted = re.findall(
        r'@jax_graphenc\.\w*program\.v1.*?program = "((?:[^"\\]|\\.)*)"', lowered.as_text(), re.S
    )
    return {
        re.sub(
            rb"\\(\\|[0-9A-F]{2})",
            lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 16)]),
            text.encode(),
        )
        for text in quoted
    }


FUNCTIONS = {
    "lone kernels": user,
    "split region": split,
    "independent kernels": wide,
    "loop that is left to XLA": partly_looped,
    "gradient": jax.grad(mixed, argnums=(0, 1)),
    "gradient of a region": jax.grad(lambda x, y: jnp.sum(jge.graph(mixed)(x, y))),
    "recomputed": jax.grad(lambda x, y: jnp.sum(jax.checkpoint(mixed)(x, y) ** 2)),
    "loop of unknown length": lambda x, y: jax.lax.while_loop(
        lambda c: c[0] < 3, lambda u: split(u, y)[0], x
    ),
    "a device's part": lambda x, y: jax.shard_map(
        split, mesh=jax.sharding.Mesh(jax.devices()[:1], "d"), in_specs=P("d"), out_specs=P("d")
    )(x, y),
    "traced value": jax.jit(lambda x, y: axpy(x, y, a=y[0])),
    "jitted": jax.jit(user),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_shows_the_bytes_that_lowering_makes(name):
    function = FUNCTIONS[name]
    told = jge.explain(function, X, ONE)
    assert told.programs
    assert {p.encoded for p in told.programs} == encoded_in(jax.jit(function).lower(X, ONE))


def test_it_shows_batches():
    rows = jax.ShapeDtypeStruct((5, 300), jnp.float32)
    batched = jax.vmap(split, (0, None))
    told = jge.explain(batched, rows, ONE)
    assert {p.encoded for p in told.programs} == encoded_in(jax.jit(batched).lower(rows, ONE))
    assert [len(p.nodes) for p in told.programs] == [10, 10]


def test_it_runs_nothing():
    jge.reset_stats()
    jge.explain(user, ONE, ONE).text()
    stats = jge.stats()
    assert [stats[name] for name in ("nodes", "images_loaded", "encoders")] == [0, 0, 0]


def test_the_text_says_it_all():
    told = jge.explain(split, X, ONE, platform="cpu")
    text = re.sub(r"  called at .*(\n    .*)*\n", "", told.text(width=80))
    assert (
        text
        == f"""\
split, compiled for cpu: 2 programs, 4 nodes

program 1: region 'split'
  nodes       2 (axpy 2), 1 edge
  run by      the encoder, as 1 executable graph
  arguments   arg0, arg1 f32[300] (1.2 kB each)
  results     out0, out1 f32[300] (1.2 kB each)
    #0    axpy  grid 5, block 64
          x <- arg0  y <- arg1  out -> out0
    #1    axpy  grid 5, block 64
          x <- out0  y <- arg1  out -> out1
          after #0: read-after-write of x

  split from the previous program by operations of XLA:
    sin: {line_of(split, "jnp.sin")} (split)

program 2: region 'split'
  nodes       2 (axpy 2), 1 edge
  run by      the encoder, as 1 executable graph
  arguments   arg0 to arg2 f32[300] (1.2 kB each)
  results     out0 f32[300] (1.2 kB)
  scratch     1.28 kB for 1 value of 1.2 kB in all (scratch_reuse='path')
    #0    axpy  grid 5, block 64
          x <- arg0  y <- arg1  out -> scratch[0:1200]
    #1    axpy  grid 5, block 64
          x <- scratch[0:1200]  y <- arg2  out -> out0
          after #0: read-after-write of x"""
    )


def test_programs_in_loops_and_branches_say_so():
    told = jge.explain(partly_looped, X, ONE)
    inside = [[re.sub(" at .*", "", place) for place in p.inside] for p in told.programs]
    scan = ["scan of 10 steps"]
    assert inside == [[], scan, scan, ["branch 0 of cond"], ["branch 1 of cond"]]
    before, in_step, behind_sin, *_ = told.programs
    assert (before.split_by, in_step.split_by) == ((), ())
    (sin,) = behind_sin.split_by
    assert sin.name == "sin"
    assert sin.where.startswith(line_of(partly_looped, "jnp.sin"))
    assert line_of(partly_looped, "lax.scan") in told.text(width=200)


def test_a_kernel_that_runs_its_reference_is_told():
    @jge.graph
    def region(x, y):
        return axpy(on_reference(axpy(x, y, a=1.0), y, a=1.0), y, a=1.0)

    told = jge.explain(region, X, ONE, platform="cpu")
    assert [op.name for op in told.programs[1].split_by] == ["axpy (its reference)"]
    assert [(op.name, op.count) for op in told.references] == [("axpy", 1)]
    assert "runs its reference instead: axpy" in str(told)


def in_place(*nodes):
    """A function of one array of 40 bytes, which nodes work on in the result."""
    made = Program("by hand", (40,), (40,), ((0, 0),), nodes)
    results = (jax.core.ShapedArray((10,), np.dtype(np.float32)),)
    return lambda x: program_p.bind(x, program=made, results=results, uncaptured=False)


def part(begin, end):
    return Buffer("result", 0, begin, end - begin)


def test_edges_say_which_hazard_and_where():
    nodes = (
        Memset(4, 0, part(0, 20)),
        Memcpy(part(8, 16), part(24, 32)),  # reads of #0
        Memset(4, 0, part(12, 28)),  # over what #0 wrote, #1 read and #1 wrote
        Memset(4, 0, part(32, 40)),
        Memcpy(part(20, 36), part(0, 16)),
    )
    explanation = jge.explain(in_place(*nodes), jnp.ones(10))
    (told,) = explanation.programs
    edges = {
        (edge.on, node.index, h.kind, h.use.parameter, h.begin, h.end)
        for node in told.nodes
        for edge in node.after
        for h in edge.hazards
    }
    assert edges == {
        (0, 1, "read-after-write", "from", 8, 16),
        (1, 2, "write-after-read", "to", 12, 16),
        (1, 2, "write-after-write", "to", 24, 28),
        (2, 4, "read-after-write", "from", 20, 28),
        (2, 4, "write-after-write", "to", 12, 16),
        (3, 4, "read-after-write", "from", 32, 36),
    }
    assert told.edges == 4
    # What another node has read in between is one range all the same.
    nodes = (
        Memset(4, 0, part(0, 24)),
        Memcpy(part(8, 12), part(36, 40)),
        Memcpy(part(4, 20), part(20, 36)),
    )
    (again,) = jge.explain(in_place(*nodes), jnp.ones(10)).programs
    (edge,) = again.nodes[2].after
    assert [(h.kind, h.begin, h.end) for h in edge.hazards] == [
        ("read-after-write", 4, 20),
        ("write-after-write", 20, 24),
    ]
    assert told.results[0].shares == "arg0"
    text = explanation.text(width=100)
    assert "after #1: write-after-read of to in out0[12:16], write-after-write of to in" in text


def test_cuts_are_where_the_encoder_commits():
    with jge.options(max_ops_per_graph=30, graph_after=0):
        (told,) = jge.explain(loop, X, ONE).programs
        run = jax.jit(loop)
        for _ in range(2):
            jge.reset_stats()
            jax.block_until_ready(run(ONE, ONE))
        stats = jge.stats()
    assert [len(graph) for graph in told.graphs] == [30] * 6 + [20]
    assert stats["commits"] == stats["graph_launches"] == len(told.graphs)
    assert stats["nodes"] == len(told.nodes)
    with jge.options(use_graphs=False):
        (told,) = jge.explain(loop, X, ONE).programs
    assert told.graphs == ()


def test_scratch_memory_is_what_xla_allocates():
    told = jge.explain(loop, X, ONE).programs[0]
    jge.reset_stats()
    jax.block_until_ready(jax.jit(lambda x, y: loop(x, y))(ONE, ONE))
    assert told.scratch.bytes == jge.stats()["scratch_bytes"] == 2 * 1280
    assert told.scratch_values() == (199, 199 * 1200)
    assert told.kernels() == {"axpy": 200}
    updated = jge.graph(lambda x, y: axpy(bump(bump(axpy(x, y, a=1.0))), y, a=1.0))
    assert jge.explain(updated, X, ONE).programs[0].scratch_values() == (1, 1200)


def test_a_join_between_many_and_many():
    @jge.graph
    def f(x):
        y = jax.vmap(lambda x: axpy(x, x, a=1.0))(x)
        return [axpy(y, y, a=float(i)) for i in range(70)]

    told = jge.explain(f, np.ones((70, 4), np.float32))
    (program,) = told.programs
    (join,) = (node for node in program.nodes if not node.uses)
    assert (join.label, [edge.on for edge in join.after]) == ("join", list(range(70)))
    assert [[edge.on for edge in node.after] for node in program.nodes[-70:]] == [[join.index]] * 70
    text = told.text(width=100)
    assert "join\n          after #0, #1, #2" in text
    assert told.dot()


def needs_nvrtc():
    try:
        nvrtc_library.version()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


def test_gpus_that_are_not_here_and_who_runs_a_program():
    needs_nvrtc()
    with jge.options(cuda_targets="sm_90a"):
        large = jge.explain(loop, X, ONE, platform="cuda")
        small = jge.explain(split, X, ONE, platform="cuda")
    assert large.target == "sm_90a"
    (told,) = large.programs
    assert (told.uncaptured, told.max_ops, len(told.graphs)) == (True, 500, 1)
    assert b"sm_90a" in told.encoded
    assert "kept out of XLA's command buffers" in large.text(width=200)
    assert not small.programs[0].uncaptured
    assert "XLA's command buffers where XLA captures the call" in small.text(width=200)
    # The compute capability decides where a program is cut.
    with jge.options(cuda_targets="sm_80"):
        (told,) = jge.explain(loop, X, ONE, platform="cuda").programs
    assert (told.max_ops, len(told.graphs)) == (20, 10)


# ---------------------------------------------------------------------- what is shown


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("", []),
        ("aa", [(0, 1, 1), (1, 1, 1)]),
        ("aaa", [(0, 1, 3)]),
        ("abababx", [(0, 2, 3), (6, 1, 1)]),
        ("xabcabcabcab", [(0, 1, 1), (1, 3, 3), (10, 1, 1), (11, 1, 1)]),
    ],
)
def test_runs(items, expected):
    found = runs(items, lambda a, b: a == b, full=False)
    assert [(r.start, r.period, r.count) for r in found] == expected
    assert all(r.count == 1 for r in runs(items, lambda a, b: a == b, full=True))


def test_runs_begin_where_a_step_does():
    found = runs("XbcAbcAbcAbcAbY", lambda a, b: a == b, full=False, leads=lambda x: x in "XA")
    assert [r for r in found if r.count > 1] == [Run(3, 3, 3)]


def test_runs_cover_all_and_repeat():
    rng = random.Random(0)
    for _ in range(200):
        items = "".join(rng.choice("ab") * rng.randint(1, 4) for _ in range(rng.randint(0, 12)))
        found = runs(items, lambda a, b: a == b, full=False)
        assert [r.start for r in found] + [len(items)] == [0] + [r.stop for r in found]
        shown = "".join(items[r.start : r.start + r.period] * r.count for r in found)
        assert shown == items


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize("function", [loop, wide, split])
def test_text_fits_and_is_short(function, width):
    told = jge.explain(function, X, ONE)
    short, full = told.text(width=width), told.text(width=width, full=True)
    assert max(map(len, short.splitlines())) <= width
    assert len(short.splitlines()) < 75
    nodes = sum(len(p.nodes) for p in told.programs)
    assert Counter(re.findall(r"#\d+ +axpy", full)).total() == nodes


def test_many_different_nodes_are_cut_short():
    @jge.graph
    def tangle(x, y):
        values, rng = [x, y], random.Random(0)
        for i in range(1000):
            values.append(axpy(values[rng.randrange(max(0, i - 3), i + 2)], y, a=1.0))
        return values

    told = jge.explain(tangle, X, ONE)
    text = told.text(width=80)
    assert "more different nodes: full=True shows them" in text
    assert len(text.splitlines()) < 600
    assert told.text(width=80, full=True).count("axpy  grid") == 1000
    (shown,) = told._repr_mimebundle_().values()
    assert shown == f"{told}\n\nno picture: more than 400 boxes; .save('picture.svg') draws them"


def test_print_takes_the_terminals_width(monkeypatch):
    told = jge.explain(split, X, ONE)
    monkeypatch.setenv("COLUMNS", "50")
    assert str(told) == repr(told) == told.text(width=50)
    assert str(told) != told.text(width=80)


def test_equal_programs_are_shown_once():
    def again(x, y):
        for _ in range(5):
            x = axpy(x, y, a=2.0)
        return x

    told = jge.explain(again, X, ONE)
    assert len(told.programs) == 5
    text = told.text(width=80)
    assert text.count("axpy  grid") == 1
    assert "programs 2 to 5: the same again" in text
    assert told.text(width=80, full=True).count("axpy  grid") == 5


def test_the_drawing_has_it_all():
    pytest.importorskip("graphviz")
    with jge.options(max_ops_per_graph=150):
        dot = jge.explain(loop, X, ONE).dot()
    assert len(re.findall(r"subgraph cluster_0_graph_\d+ ", dot)) == 2
    assert "RAW x (scratch)" in dot
    assert "WAR out (scratch)" in dot
    assert "2.56 kB for 199 values" in dot
    dot = jge.explain(split, X, ONE).dot()
    assert f"sin: {line_of(split, 'jnp.sin')}" in dot
    assert re.findall(r"subgraph (cluster_\d+) ", dot) == ["cluster_0", "cluster_1"]
    assert dot.count("RAW x") == 2
    # Every node and edge is there, if asked for.
    dot = jge.explain(loop, X, ONE, platform="cpu").dot(full=True)
    assert len(re.findall(r"^\s*p0n\d+ \[label", dot, re.M)) == 200
    inside = 199 - 9  # but what goes from one of ten graphs to the next
    assert len(re.findall(r"^\s*p0n\d+ -> p0n\d+ .*RAW", dot, re.M)) == inside


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz's dot is not installed")
@pytest.mark.parametrize("function", [split, wide, loop, partly_looped])
def test_graphviz_draws_it(function, tmp_path, capfd):
    pytest.importorskip("graphviz")
    told = jge.explain(function, X, ONE)
    svg = told._repr_mimebundle_()["image/svg+xml"]
    assert svg.count('class="cluster"') >= len(told.programs)
    for program in told.programs:
        assert f"region &#39;{program.region}&#39;" in svg
    told.save(tmp_path / "told.svg")
    assert (tmp_path / "told.svg").read_text() == svg
    assert capfd.readouterr().err == ""  # dot warns of what it cannot draw


@pytest.mark.parametrize("name", ["<b>&x</i>", 'a"b\\N', "\x1b[31mred\0\n", "[bold]é"])
def test_any_name_can_be_shown(name, capfd):
    def function(x, y):
        return split(x, y)

    function.__name__ = name
    told = jge.explain(jge.graph(function), X, ONE)
    shown = told.text(width=80).splitlines()
    assert all(line.isprintable() for line in shown)
    assert told.function in shown[0]
    if shutil.which("dot") is not None:
        pytest.importorskip("graphviz")
        assert told.function in html.unescape(told.svg())
        assert capfd.readouterr().err == ""


def test_a_program_that_launches_nothing_says_so():
    text = jge.explain(split, jnp.zeros(0), jnp.zeros(0)).text(width=80)
    assert "nodes       0 (none), 0 edges" in text
    assert "run by      nothing: the program has no nodes" in text


def test_without_graphviz_notebooks_show_text(monkeypatch, tmp_path):
    pytest.importorskip("graphviz")
    told = jge.explain(split, X, ONE)
    monkeypatch.setenv("PATH", str(tmp_path))
    (shown,) = told._repr_mimebundle_().values()
    assert shown.startswith(f"{told}\n\nno picture: ")
    assert "apt install graphviz" in shown
    with pytest.raises(FileNotFoundError, match="apt install graphviz"):
        told.svg()
    with pytest.raises(FileNotFoundError, match="apt install graphviz"):
        told.save(tmp_path / "a.svg")
    told.save(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == told.text(width=100) + "\n"
    told.save(tmp_path / "a.dot")
    assert (tmp_path / "a.dot").read_text() == told.dot()
    assert not (tmp_path / "a.svg").exists()


def test_a_method_called_trace_is_not_jaxs():
    class Model:
        def trace(self):
            raise AssertionError

        def __call__(self, x, y):
            return axpy(x, y, a=2.0)

    assert jge.explain(Model(), X, ONE).function == "Model"


def test_mistakes_are_named(tmp_path):
    with pytest.raises(TypeError, match="fn=3 is not callable"):
        jge.explain(3)
    with pytest.raises(ValueError, match="platform='tpu': 'cpu' or 'cuda' is expected"):
        jge.explain(split, X, ONE, platform="tpu")
    with pytest.raises(ValueError, match=r"ends in one of \.txt, \.dot"):
        jge.explain(split, X, ONE).save(tmp_path / "report.doc")


# ---------------------------------------------------------------------- the command


def run_command(*arguments):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers(required=True))
    options = parser.parse_args(["explain", *arguments])
    return options.run(options)


MODULE = f"""
import jax, jax.numpy as jnp
import jax_graphenc as jge
axpy = jge.cuda_kernel({SOURCE!r}, "axpy", out_shape=lambda x, *_, **__: x, grid=5, block=64)

@jge.graph
def inner(x, y):
    return axpy(axpy(x, y, a=1.0, n=300), y, a=2.0, n=300)

def step(x, y, count):
    for _ in range(count):
        x = inner(x, y)
    return x

def example_arguments():
    return jax.ShapeDtypeStruct((300,), jnp.float32), jnp.ones(300), 2
"""


def test_the_command_explains_a_function_of_a_file(tmp_path, capsys):
    (tmp_path / "solver.py").write_text(MODULE)
    function = f"{tmp_path}/solver.py:step"
    cpu = "--platform", "cpu"
    assert run_command(function, *cpu, "--shape", "f32[300]", "float32[300]", "count=3") == 0
    assert "step, compiled for cpu: 3 programs, 6 nodes" in capsys.readouterr().out
    assert run_command(function, *cpu, "--full") == 0
    assert "step, compiled for cpu: 2 programs, 4 nodes" in capsys.readouterr().out
    if shutil.which("dot"):
        pytest.importorskip("graphviz")
        assert run_command(function, "--svg", f"{tmp_path}/a.svg") == 0
        assert (tmp_path / "a.svg").read_text().startswith("<?xml")
        assert run_command(function, "--svg", f"{tmp_path}/nowhere/a.svg") == 1
        assert "nowhere" in capsys.readouterr().err


def test_the_command_says_what_it_lacks(tmp_path, capsys):
    (tmp_path / "solver.py").write_text(MODULE.replace("def example_arguments", "def other"))
    function = f"{tmp_path}/solver.py:step"
    assert run_command(function, "--platform", "cpu") == 1
    assert "--shape gives the arguments of step(x, y, count" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run_command(function, "--svg", "picture.png")
    assert "'picture.png': a name that ends in .svg is expected" in capsys.readouterr().err


def test_the_command_compiles_for_a_target(tmp_path, capsys):
    needs_nvrtc()
    (tmp_path / "solver.py").write_text(MODULE)
    assert run_command(f"{tmp_path}/solver.py:step", "--target", "sm_90a") == 0
    assert "step, compiled for sm_90a: 2 programs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["json"], "module:function is expected"),
        (["no_such_module:f"], "there is no module no_such_module"),
        (["no/such.py:f"], "there is no file no/such.py"),
        (["json:nothing"], "json has no nothing"),
        (["json:dumps", "--shape", "f32[3"], "an array such as f32"),
        (["json:dumps", "--shape", "g32[3]"], "an array such as f32"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        run_command(*arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("f32", ((), "float32")),
        ("i32[10]", ((10,), "int32")),
        ("bf16[2, 3]", ((2, 3), "bfloat16")),
        ("pred[1]", ((1,), "bool")),
        ("float8_e4m3fn[4]", ((4,), "float8_e4m3fn")),
    ],
)
def test_shapes_on_the_command_line(spec, expected):
    name, array = specs.argument(spec)
    assert (name, (array.shape, array.dtype.name)) == (None, expected)
    assert specs.argument("n=(1, 2)") == ("n", (1, 2))
