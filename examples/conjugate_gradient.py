"""Heat through a plate with holes and inclusions, by a conjugate-gradient solver in CUDA.

A plate of steel is hot on the left and cold on the right. It has holes, discs of copper, which heat
seeks, and discs of plastic, which it avoids. Linear finite elements on a mesh of triangles make one
equation for the temperature at each node: a sparse, symmetric system whose rows have no pattern.

    python examples/conjugate_gradient.py                  writes conjugate_gradient.png
    python examples/conjugate_gradient.py --size 50000     a finer mesh: so many nodes

An iteration is three kernels. Two of them also form the dot products of the vectors that they read:
each block writes its part of the sum, and the blocks of the next kernel add the parts up. So no
scalar leaves the GPU, no operation of XLA's runs between the kernels, and several iterations are
one region (``jge.graph``); ``jax.lax.while_loop`` runs regions until the residual is small. With
``jnp.vdot`` an iteration would take five more passes over memory, and three regions.

The kernels run on the GPU or, where there is none, on the CPU, on a coarser mesh. The solution is
put into the equations, compared with one by elimination, and must release as much heat as it takes
in; the exit status is 1 if one of these checks fails. ``jax.scipy.sparse.linalg.cg`` solves the
same for comparison.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from jax.experimental.sparse import BCSR
from jax.scipy.sparse.linalg import cg
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import Delaunay

import jax_graphenc as jge

CUDA = r"""
// The sum over the threads of a block; all of them get it.
__device__ double sum_of_block(double value) {
  __shared__ double of_warp[32];
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_down_sync(0xffffffff, value, offset);
  __syncthreads();  // an earlier sum has been read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += of_warp[warp];
  return sum;
}

// The sum of what the blocks of another kernel have left, always in the same order.
__device__ double sum_of_parts(const double* parts, int count) {
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
  return sum_of_block(sum);
}

// q = A p for a matrix in CSR form, LANES threads to a row; and each block's part of p q.
extern "C" __global__ void multiply(const int* __restrict__ starts,
                                    const int* __restrict__ columns,
                                    const double* __restrict__ values,
                                    const double* __restrict__ p, double* __restrict__ q,
                                    double* __restrict__ pq_parts, int rows) {
  const int lane = threadIdx.x % LANES, per_block = blockDim.x / LANES;
  double pq = 0;
  for (int first = blockIdx.x * per_block; first < rows; first += gridDim.x * per_block) {
    const int row = first + threadIdx.x / LANES;
    double sum = 0;
    if (row < rows)
      for (int i = starts[row] + lane; i < starts[row + 1]; i += LANES)
        sum += values[i] * p[columns[i]];
    for (int offset = LANES / 2; offset > 0; offset /= 2)
      sum += __shfl_down_sync(0xffffffff, sum, offset, LANES);
    if (lane == 0 && row < rows) {
      q[row] = sum;
      pq += p[row] * sum;
    }
  }
  pq = sum_of_block(pq);
  if (threadIdx.x == 0) pq_parts[blockIdx.x] = pq;
}

// Goes along p to where the error is least; and the parts of r z and r r, where z is the residual
// over the diagonal (Jacobi's preconditioner). `dots` are r z and r r as they were before.
extern "C" __global__ void descend(const double* __restrict__ p, const double* __restrict__ q,
                                   const double* __restrict__ diagonal,
                                   const double* __restrict__ pq_parts,
                                   const double* __restrict__ dots, double* __restrict__ x,
                                   double* __restrict__ r, double* __restrict__ rz_parts,
                                   double* __restrict__ rr_parts, int rows) {
  const double alpha = dots[0] / sum_of_parts(pq_parts, gridDim.x);
  double rz = 0, rr = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += gridDim.x * blockDim.x) {
    x[i] += alpha * p[i];
    const double left = r[i] - alpha * q[i];
    r[i] = left;
    rz += left * left / diagonal[i];
    rr += left * left;
  }
  rz = sum_of_block(rz);
  rr = sum_of_block(rr);
  if (threadIdx.x == 0) rz_parts[blockIdx.x] = rz, rr_parts[blockIdx.x] = rr;
}

// The next direction, conjugate to all before it.
extern "C" __global__ void turn(const double* __restrict__ r, const double* __restrict__ diagonal,
                                const double* __restrict__ rz_parts,
                                const double* __restrict__ rr_parts,
                                const double* __restrict__ dots, double* __restrict__ p,
                                double* __restrict__ next_dots, int rows) {
  const double rz = sum_of_parts(rz_parts, gridDim.x), rr = sum_of_parts(rr_parts, gridDim.x);
  const double beta = rz / dots[0];
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += gridDim.x * blockDim.x)
    p[i] = r[i] / diagonal[i] + beta * p[i];
  if (blockIdx.x == 0 && threadIdx.x == 0) next_dots[0] = rz, next_dots[1] = rr;
}
"""

BLOCK = 256
LANES = 4  # a row has about seven entries
PER_REGION = 25  # iterations
TOLERANCE = 1e-8  # of the residual, relative to the right side
# Tolerances: the true residual, the degrees from elimination, and the heat that is lost.
RESIDUAL, DEGREES, LOST = 2 * TOLERANCE, 1e-4, 1e-6
BY_ELIMINATION = 100_000  # nodes; more take too long

PLATE = 0.2, 0.1  # width and height in metres
HOT, COLD = 100.0, 20.0  # degrees Celsius
STEEL, COPPER, PLASTIC, HOLE = 15.0, 400.0, 0.2, 0.0  # conductivities in W/(m K)
DISCS = (  # x, y and radius in metres, and the material
    (0.035, 0.030, 0.016, HOLE),
    (0.045, 0.073, 0.017, COPPER),
    (0.085, 0.050, 0.018, PLASTIC),
    (0.110, 0.018, 0.011, COPPER),
    (0.118, 0.080, 0.012, HOLE),
    (0.150, 0.045, 0.020, COPPER),
    (0.182, 0.082, 0.010, HOLE),
    (0.180, 0.016, 0.009, PLASTIC),
)


def blocks():
    """Enough to fill a GPU and no more, because a thread takes several rows; one on the CPU."""
    return 8 * jge.device_info().multiprocessors if jax.default_backend() == "gpu" else 1


def parts():
    return jax.ShapeDtypeStruct((blocks(),), jnp.float64)


kernel = partial(
    jge.cuda_kernel, CUDA, grid=lambda: blocks(), block=BLOCK, defines={"LANES": LANES}
)
multiply = kernel(
    "multiply",
    out_shape=lambda p: (p, parts()),
    values={"rows": lambda starts: starts.size - 1},
)
descend = kernel(
    "descend",
    params={"x": "inout", "r": "inout"},
    out_shape=lambda: (parts(), parts()),
    values={"rows": lambda p: p.size},
)
turn = kernel(
    "turn",
    params={"p": "inout"},
    out_shape=lambda dots: dots,
    values={"rows": lambda r: r.size},
)


class System(NamedTuple):
    """A x = b, the matrix in CSR form."""

    starts: jax.Array  # (rows + 1,), int32
    columns: jax.Array  # (entries,), int32
    values: jax.Array  # (entries,)
    diagonal: jax.Array  # (rows,)
    b: jax.Array  # (rows,)


class State(NamedTuple):
    """The solver's state: the solution, its residual, the direction, and r z and r r."""

    x: jax.Array
    r: jax.Array
    p: jax.Array
    dots: jax.Array  # (2,)
    squares: jax.Array  # (regions, PER_REGION): r r after each iteration
    regions: jax.Array  # so far


def start(system, iterations):
    """The state at x = 0, with room for a number of iterations."""
    b, z = system.b, system.b / system.diagonal
    squares = jnp.zeros((jge.cdiv(iterations, PER_REGION), PER_REGION))
    return State(jnp.zeros_like(b), b, z, jnp.stack([b @ z, b @ b]), squares, jnp.int32(0))


def iterate(system, x, r, p, dots):
    """PER_REGION iterations: the new x, r, p and dots, and r r after each."""

    def iteration(carry, _):
        x, r, p, dots = carry
        q, pq_parts = multiply(system.starts, system.columns, system.values, p)
        x, r, rz_parts, rr_parts = descend(p, q, system.diagonal, pq_parts, dots, x, r)
        p, dots = turn(r, system.diagonal, rz_parts, rr_parts, dots, p)
        return (x, r, p, dots), dots

    carry, all_dots = jax.lax.scan(iteration, (x, r, p, dots), length=PER_REGION)
    return *carry, all_dots


def solve(system, state, until, iterate=iterate):
    """Iterates until the residual is small enough, or for a number of regions."""
    enough = TOLERANCE**2 * (system.b @ system.b)

    def region(state):
        *carry, all_dots = iterate(system, *state[:4])
        squares = state.squares.at[state.regions].set(all_dots[:, 1])
        return State(*carry, squares, state.regions + 1)

    return jax.lax.while_loop(lambda s: (s.dots[1] > enough) & (s.regions < until), region, state)


def solve_by_jax(system, iterations):
    """The same by JAX's own solver and sparse matrices, with the same preconditioner."""
    matrix = BCSR((system.values, system.columns, system.starts), shape=2 * system.b.shape)
    return cg(
        lambda x: matrix @ x,
        system.b,
        tol=TOLERANCE,
        maxiter=iterations,
        M=lambda r: r / system.diagonal,
    )[0]


class Plate(NamedTuple):
    """A mesh of the plate, and its matrix over all nodes."""

    points: np.ndarray  # (nodes, 2), metres
    triangles: np.ndarray  # (triangles, 3), nodes
    conductivity: np.ndarray  # (triangles,)
    mesh: Delaunay  # the triangles and those in the holes
    matrix: scipy.sparse.csr_array


def material(points):
    """The conductivity at (n, 2) points."""
    found = np.full(len(points), STEEL)
    for x, y, radius, conductivity in DISCS:
        found[np.hypot(points[:, 0] - x, points[:, 1] - y) < radius] = conductivity
    return found


def make_plate(nodes):
    """A mesh of about that many nodes, with edges along the discs, and its stiffness matrix."""
    random = np.random.default_rng(0)
    wide, high = PLATE
    spacing = (wide * high / nodes) ** 0.5
    across, up = round(wide / spacing), round(high / spacing)
    y, x = np.indices((up + 1, across + 1)).reshape(2, -1)
    points = np.stack([x * wide / across, y * high / up], axis=1)
    inner = (x > 0) & (x < across) & (y > 0) & (y < up)
    points[inner] += random.uniform(-0.25, 0.25, (inner.sum(), 2)) * spacing
    for cx, cy, radius, conductivity in DISCS:
        away = np.hypot(points[:, 0] - cx, points[:, 1] - cy) - radius
        keep = (away > 0.5 * spacing) | ((away < -0.5 * spacing) & (conductivity != HOLE))
        angle = np.arange(n := round(2 * np.pi * radius / spacing)) * 2 * np.pi / n
        circle = np.stack([cx + radius * np.cos(angle), cy + radius * np.sin(angle)], axis=1)
        points = np.concatenate([points[keep], circle])

    mesh = Delaunay(points)
    conductivity = material(points[mesh.simplices].mean(axis=1))
    corners = points[mesh.simplices]
    sides = np.roll(corners, 1, axis=1) - np.roll(corners, -1, axis=1)  # opposite to each corner
    area = abs(sides[:, 0, 0] * sides[:, 1, 1] - sides[:, 0, 1] * sides[:, 1, 0]) / 2
    kept = (conductivity != HOLE) & (area > 1e-6 * spacing**2)  # the hull may have flat triangles
    triangles, conductivity, sides, area = (
        array[kept] for array in (mesh.simplices, conductivity, sides, area)
    )
    each = np.einsum("tid,tjd->tij", sides, sides) * (conductivity / (4 * area))[:, None, None]
    rows, columns = np.repeat(triangles, 3, axis=1), np.tile(triangles, 3)
    matrix = scipy.sparse.coo_array((each.ravel(), (rows.ravel(), columns.ravel()))).tocsr()
    return Plate(points, triangles, conductivity, mesh, matrix)


def make_system(plate):
    """The equations for free nodes, the temperatures of the others, and scipy's matrix.

    The temperatures are (nodes,), nan where they are unknown.
    """
    x = plate.points[:, 0]
    given = np.select([x == 0, x == PLATE[0]], [HOT, COLD], np.nan)
    free = np.isnan(given)
    matrix = plate.matrix[free][:, free]
    b = -plate.matrix[free][:, ~free] @ given[~free]
    index = matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)
    system = System(*map(jnp.asarray, (*index, matrix.data, matrix.diagonal(), b)))
    return system, given, matrix


def show(line=""):
    """Shows progress on one line, if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)


def timed(function, *arguments):
    begin = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return result, time.perf_counter() - begin


def solve_and_show(system, regions):
    """Solves, showing progress; returns the last state."""
    run = jax.jit(partial(solve, iterate=jge.graph(iterate, name="iterations")))
    state, norm = start(system, regions * PER_REGION), float(system.b @ system.b) ** 0.5
    residual, done = 1.0, 0
    while residual > TOLERANCE and done < regions:
        state = run(system, state, min(done + 10, regions))
        residual, done = float(state.dots[1]) ** 0.5 / norm, int(state.regions)
        show(f"{done * PER_REGION} iterations, residual {residual:.1e}, until {TOLERANCE:.0e}")
    return state


def measure(name, function, *arguments):
    """Seconds of a run; the first one loads and warms up."""
    show(f"{name}: getting ready")
    run = jax.jit(function).lower(*arguments).compile()
    show(f"{name}: running")
    timed(run, *arguments)
    return min(timed(run, *arguments)[1] for _ in range(3))


def times_of_an_iteration(system, iterations):
    """Seconds by name: the three kernels one by one, as a region, and JAX's own solver."""
    regions = min(4, iterations // PER_REGION)
    count = regions * PER_REGION
    state = start(system, count)
    ways = {"jax.jit": iterate, "jge.graph": jge.graph(iterate, name="iterations")}
    seconds = {
        name: measure(name, partial(solve, iterate=way), system, state, regions)
        for name, way in ways.items()
    }
    seconds["jax.scipy"] = measure("jax.scipy", lambda s: solve_by_jax(s, count), system)
    return {name: s / count for name, s in seconds.items()}


def flows(plate, temperature):
    """The heat that enters on the left and leaves on the right, in W per metre of depth."""
    flow = plate.matrix @ temperature
    x = plate.points[:, 0]
    return flow[x == 0].sum(), -flow[x == PLATE[0]].sum()


def draw(plate, temperature, residuals, out):
    """Writes the temperature with lines of heat flow, a piece of the mesh, and the residuals."""
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    wide, high = (100 * n for n in PLATE)  # centimetres from here on
    names = {COPPER: "copper", PLASTIC: "plastic", HOLE: "hole"}
    x, y = np.meshgrid(np.linspace(0, PLATE[0], 801), np.linspace(0, PLATE[1], 401))
    field = LinearNDInterpolator(plate.mesh, temperature)(x, y)
    conductivity = material(np.stack([x.ravel(), y.ravel()], axis=1)).reshape(x.shape)
    down, along = np.gradient(field)
    field[conductivity == HOLE] = np.nan
    conducts = np.where(conductivity == HOLE, STEEL, conductivity)  # lines graze the holes' edges

    figure = Figure(figsize=(11, 9.5), dpi=130, layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=[1.6, 1])
    top = figure.add_subplot(grid[0, :])
    image = top.imshow(field, cmap="inferno", origin="lower", extent=(0, wide, 0, high))
    figure.colorbar(image, ax=top, label="temperature in °C", fraction=0.024, pad=0.01)
    top.contour(100 * x, 100 * y, field, np.arange(25, 100, 5), colors="k", linewidths=0.6)
    top.streamplot(
        100 * x,
        100 * y,
        -conducts * along,
        -conducts * down,
        color="w",
        linewidth=0.6,
        arrowsize=0.7,
        start_points=[(0.05, high * (i + 0.5) / 24) for i in range(24)],
        broken_streamlines=False,
        integration_direction="forward",
    )
    for cx, cy, radius, kind in DISCS:
        top.add_patch(Circle((100 * cx, 100 * cy), 100 * radius, fill=False, color="c", lw=1.2))
        style = {"boxstyle": "round,pad=0.15", "facecolor": "w", "edgecolor": "none", "alpha": 0.8}
        top.text(100 * cx, 100 * cy, names[kind], ha="center", va="center", fontsize=8, bbox=style)
    top.set(xlabel="x in cm", ylabel="y in cm", xlim=(0, wide), ylim=(0, high))
    top.set_title(
        "Temperature in a steel plate, hot on the left and cold on the right;\n"
        "black: equal temperature, every 5 °C; white: along the flow of heat"
    )

    left = figure.add_subplot(grid[1, 0])
    cx, cy, radius, _ = DISCS[0]
    size = min(1.5 * radius, 30 * (PLATE[0] * PLATE[1] / len(plate.points)) ** 0.5)
    rim = np.array([cx, cy]) + radius / 2**0.5  # the hole fills the lower left half
    corner = rim - size / 2
    corners = plate.points[plate.triangles]
    inside = np.all(abs(corners.mean(axis=1) - corner - size / 2) < size * 0.7, axis=1)
    mean = temperature[plate.triangles[inside]].mean(axis=1)
    piece = PolyCollection(
        100 * corners[inside], array=mean, cmap="inferno", edgecolors="0.7", lw=0.4
    )
    piece.set_clim(*image.get_clim())
    left.add_collection(piece)
    low, right = 100 * corner, 100 * (corner + size)
    left.set(xlim=(low[0], right[0]), ylim=(low[1], right[1]), aspect="equal")
    left.set(xlabel="x in cm", ylabel="y in cm")
    left.set_title(
        f"The mesh beside the first hole, of {len(plate.triangles)} triangles", fontsize=10
    )

    history = figure.add_subplot(grid[1, 1])
    history.semilogy(np.arange(1, len(residuals) + 1), residuals, lw=1)
    history.axhline(TOLERANCE, color="0.4", ls="--", lw=1)
    history.annotate(" tolerance", (0, TOLERANCE), va="bottom")
    history.set(xlabel="iteration", ylabel="|b - A x| / |b|", xlim=(0, len(residuals)))
    history.set_title("Residual", fontsize=10)
    history.grid(alpha=0.3)
    figure.savefig(out)


def draw_if_possible(out, draw, *arguments):
    """The picture's line in the output; only the picture needs matplotlib."""
    try:
        draw(*arguments, out)
    except ModuleNotFoundError as error:
        return f"none was drawn: {error.name} is missing; pip install matplotlib"
    return str(out)


def parse(arguments):
    parser = argparse.ArgumentParser(description="Heat in a plate, by conjugate gradients in CUDA.")
    parser.add_argument("--size", type=int, help="nodes of the mesh (GPU: 500000, CPU: 12000)")
    parser.add_argument("--steps", type=int, default=20000, help="iterations at most (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("conjugate_gradient.png"), help="picture")
    parser.add_argument("--quick", action="store_true", help="a coarse mesh, for a few seconds")
    options = parser.parse_args(arguments)
    if options.size is None:
        on_gpu = jax.default_backend() == "gpu"
        options.size = 2000 if options.quick else 500_000 if on_gpu else 12_000
    if options.size < 500:
        parser.error("--size: 500 nodes or more are expected; the discs need some")
    if options.steps < PER_REGION:
        parser.error(f"--steps: {PER_REGION} or more are expected")
    if not options.out.absolute().parent.is_dir():
        parser.error(f"--out: there is no folder {options.out.parent}")
    return options


def main(arguments=None):
    jax.config.update("jax_enable_x64", True)  # the kernels are of double precision
    options = parse(arguments)
    show("making the mesh")
    plate = make_plate(options.size)
    system, given, matrix = make_system(plate)
    state = solve_and_show(system, options.steps // PER_REGION)

    x, b = np.asarray(state.x), np.asarray(system.b)
    norm = np.linalg.norm(b)
    squares = np.asarray(state.squares)[: int(state.regions)].ravel()
    residuals = np.sqrt(squares) / norm
    residual = np.linalg.norm(b - matrix @ x) / norm
    temperature = given.copy()
    temperature[np.isnan(given)] = x
    heat_in, heat_out = flows(plate, temperature)
    lost = abs(heat_in - heat_out) / heat_in
    difference = None
    if len(plate.points) <= BY_ELIMINATION:
        show("elimination")
        difference = np.abs(x - scipy.sparse.linalg.spsolve(matrix.tocsc(), b)).max()
    seconds = times_of_an_iteration(system, len(residuals))
    show("drawing")
    picture = draw_if_possible(options.out, draw, plate, temperature, residuals)
    show()

    print(f"""\
plate        {len(plate.points)} nodes, {len(plate.triangles)} triangles
system       {len(b)} unknowns, {matrix.nnz} entries, double precision
device       {str(jge.device_info()).splitlines()[0]}
solver       {len(residuals)} iterations, {PER_REGION} in a region

             one iteration""")
    for name, s in seconds.items():
        print(f"{name:<12}{1000 * s:>11.4f} ms")
    compared = (
        f"not compared above {BY_ELIMINATION} nodes"
        if difference is None
        else f"{difference:.1e} °C apart at most; {DEGREES:.0e} is accepted"
    )
    print(f"""
residual     {residual:.1e} of the right side; {RESIDUAL:.0e} is accepted
elimination  {compared}
heat         {heat_in:.2f} W/m in, {lost:.0e} of it lost; {LOST:.0e} is accepted
picture      {picture}""")
    wrong = []
    if not residual < RESIDUAL:
        wrong.append(f"The equations are not solved after {len(residuals)} iterations.")
    if difference is not None and not difference < DEGREES:
        wrong.append("The solution is not that of elimination.")
    if not lost < LOST:
        wrong.append("Heat gets lost in the plate.")
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
