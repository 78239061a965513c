"""Vortices behind a cylinder, by the lattice-Boltzmann method in one CUDA kernel.

A channel with a cylinder in it, Reynolds number 100: the flow sheds vortices, one to each side in
turn (a Karman vortex street). The set-up is the benchmark 2D-2 of Schaefer and Turek, "Benchmark
computations of laminar flow around a cylinder", Notes on Numerical Fluid Mechanics 52 (1996). It
publishes bounds for the Strouhal number, the frequency of the vortices: 0.295 to 0.305.

    python examples/lattice_boltzmann.py               writes lattice_boltzmann.png
    python examples/lattice_boltzmann.py --size 40     a finer lattice: 40 nodes across the cylinder

Each node of the lattice has nine numbers: the fluid that moves in each of nine directions (D2Q9). A
step moves them to the neighbours and relaxes those that meet towards equilibrium. The kernel does
both at once, and all boundary conditions. The steps between two readings of the forces on the
cylinder are one region (``jge.graph``).

The kernel runs on the GPU or, where there is none, on the CPU, on a coarser lattice. It is compared
with jax.numpy; fluid in a closed box must keep its mass; and the Strouhal number is held against
the published one. The exit status is 1 if any of these fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

# Nine planes, one for each direction, so that a warp's 32 threads read 32 adjacent floats.
CUDA = r"""
// How much of the fluid moves with velocity (cx, cy), its share at rest, and the way back.
#define DIRECTIONS                                                              \
  constexpr int cx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1};                         \
  constexpr int cy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};                         \
  constexpr int back[9] = {0, 3, 4, 1, 2, 7, 8, 5, 6};                          \
  constexpr float share[9] = {4 / 9.f,  1 / 9.f,  1 / 9.f,  1 / 9.f, 1 / 9.f,   \
                              1 / 36.f, 1 / 36.f, 1 / 36.f, 1 / 36.f};

// One step. Each node pulls what its neighbours sent in the step before, so no node writes where
// another reads. Walls lie half-way between two nodes.
extern "C" __global__ void stream_and_collide(const float* __restrict__ f,
                                              const unsigned char* __restrict__ solid,
                                              float* __restrict__ next, float omega, float inflow,
                                              int width, int height) {
  DIRECTIONS
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const int plane = width * height, here = y * width + x;
  if (solid[here]) {
    for (int i = 0; i < 9; ++i) next[i * plane + here] = share[i];
    return;
  }

  // What this node sent itself: needed at boundaries, where some of it comes back.
  float sent[9], came[9];
#pragma unroll
  for (int i = 0; i < 9; ++i) sent[i] = f[i * plane + here];

#pragma unroll
  for (int i = 0; i < 9; ++i) {
    const int fx = x - cx[i], fy = y - cy[i];  // where it comes from
    if (fy < 0 || fy >= height) {
      came[i] = sent[back[i]];  // a wall sends it back
    } else if (fx < 0) {
      // The inlet is a wall that moves, fastest in the middle.
      const float from_wall = (y + 0.5f) / height;
      came[i] = sent[back[i]] + 6 * share[i] * 4 * inflow * from_wall * (1 - from_wall);
    } else if (fx >= width) {
      // Behind the outlet is fluid of density 1 that moves along with the node's.
      float density = 0, vx = 0, vy = 0;
      for (int k = 0; k < 9; ++k) density += sent[k], vx += cx[k] * sent[k], vy += cy[k] * sent[k];
      vx /= density, vy /= density;
      const float along = cx[i] * vx + cy[i] * vy;
      came[i] =
          share[i] * (1 + 3 * along + 4.5f * along * along - 1.5f * (vx * vx + vy * vy));
    } else {
      const int from = fy * width + fx;
      came[i] = solid[from] ? sent[back[i]] : f[i * plane + from];
    }
  }

  float density = 0, vx = 0, vy = 0;
#pragma unroll
  for (int i = 0; i < 9; ++i) density += came[i], vx += cx[i] * came[i], vy += cy[i] * came[i];
  vx /= density, vy /= density;
#pragma unroll
  for (int i = 0; i < 9; ++i) {
    const float along = cx[i] * vx + cy[i] * vy;
    const float equilibrium =
        share[i] * density * (1 + 3 * along + 4.5f * along * along - 1.5f * (vx * vx + vy * vy));
    next[i * plane + here] = came[i] + omega * (equilibrium - came[i]);
  }
}
"""
BLOCK = (64, 4)


def grid(f):
    return jge.cdiv(f.shape[2], BLOCK[0]), jge.cdiv(f.shape[1], BLOCK[1])


stream_and_collide = jge.cuda_kernel(
    CUDA,
    "stream_and_collide",
    out_shape=lambda f: f,
    grid=grid,
    block=BLOCK,
    values={"width": lambda f: f.shape[2], "height": lambda f: f.shape[1]},
)

# The directions again, for jax.numpy.
CX = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1])
CY = np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
BACK = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])
SHARE = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)

REYNOLDS = 100
FASTEST = 0.1  # inflow in the middle of the channel, in nodes per step; sound has 0.58
MEAN = FASTEST * 2 / 3  # the velocity U of the Reynolds and Strouhal numbers
PUBLISHED = 0.295, 0.305  # the Strouhal number, Schaefer and Turek 1996, test case 2D-2
# A coarse cylinder is not round: the tolerance beyond the published bounds.
FINE, OFF_WHERE_COARSE = 60, 0.03
EVEN_AFTER = 30  # times diameter / U; by then the flow swings evenly
DIFFERENCE, LOSS = 1e-5, 1e-5  # tolerances: from jax.numpy, and of the mass
RUNS = (
    3,
    20,
)  # timed runs for a median: as many as fit into half a second, within these bounds


@dataclass(frozen=True)
class Flow:
    """The benchmark's channel on a lattice with that many nodes across the cylinder."""

    diameter: int

    @property
    def shape(self):
        """Height and width: 4.1 by 22 diameters."""
        return round(4.1 * self.diameter), 22 * self.diameter

    @property
    def omega(self):
        """The relaxation rate, from the viscosity."""
        return 1 / (0.5 + 3 * MEAN * self.diameter / REYNOLDS)

    @property
    def solid(self):
        """(height, width), uint8: 1 in the cylinder, two diameters from inlet and lower wall."""
        y, x = np.indices(self.shape) + 0.5
        centre = 2 * self.diameter
        inside = np.hypot(x - centre, y - centre) < self.diameter / 2
        return jnp.asarray(inside, jnp.uint8)

    def start(self):
        """The inflow's velocity everywhere."""
        height, width = self.shape
        y = (np.arange(height, dtype=np.float32)[:, None] + 0.5) / height
        vx = np.broadcast_to(4 * FASTEST * y * (1 - y), (height, width))
        return equilibrium(1.0, jnp.asarray(vx), 0.0)

    def force_weights(self):
        """The factor from fluid sent at the cylinder to drag and lift coefficients.

        The fluid comes back reversed, so the cylinder takes twice its momentum.
        """
        solid = np.asarray(self.solid, bool)
        weights = np.zeros((2, 9, *self.shape), np.float32)
        for i in range(1, 9):
            hits = ~solid & np.roll(solid, (-CY[i], -CX[i]), (0, 1))
            weights[:, i] = 2 * hits * np.array([CX[i], CY[i]])[:, None, None]
        return weights / (0.5 * MEAN**2 * self.diameter)

    def advance(self, f, solid, steps):
        """A number of steps by the kernel."""

        def step(_, f):
            return stream_and_collide(f, solid, omega=self.omega, inflow=FASTEST)

        return jax.lax.fori_loop(0, steps, step, f)

    def advance_in_numpy(self, f, solid, steps):
        """The same in jax.numpy: shifts whole planes and corrects the borders."""
        height = self.shape[0]
        y = (jnp.arange(height) + 0.5) / height
        inlet = 4 * FASTEST * y * (1 - y)
        blocked = [jnp.roll(solid, (CY[i], CX[i]), (0, 1)).astype(bool) for i in range(9)]

        def step(_, f):
            _, vx, vy = moments(f[:, :, -1])
            out = equilibrium(1.0, vx, vy)
            planes = []
            for i, back in enumerate(BACK):
                came = jnp.where(blocked[i], f[back], jnp.roll(f[i], (CY[i], CX[i]), (0, 1)))
                if CX[i] > 0:
                    came = came.at[:, 0].set(f[back, :, 0] + 6 * SHARE[i] * inlet)
                elif CX[i] < 0:
                    came = came.at[:, -1].set(out[i])
                if CY[i]:
                    row = 0 if CY[i] > 0 else height - 1
                    came = came.at[row].set(f[back, row])
                planes.append(came)
            came = jnp.stack(planes)
            collided = came + self.omega * (equilibrium(*moments(came)) - came)
            at_rest = jnp.broadcast_to(SHARE[:, None, None], f.shape)
            return jnp.where(solid, at_rest, collided)

        return jax.lax.fori_loop(0, steps, step, f)


def moments(f):
    """Density and velocity, each (...), of (9, ...)."""
    density = jnp.sum(f, axis=0)
    vx, vy = (jnp.tensordot(c.astype(np.float32), f, 1) / density for c in (CX, CY))
    return density, vx, vy


def equilibrium(density, vx, vy):
    """The equilibrium at a density and velocity: (9, ...)."""
    directions = zip(SHARE, CX, CY, strict=True)
    along = [(share, cx * vx + cy * vy) for share, cx, cy in directions]
    square = vx * vx + vy * vy
    return jnp.stack([s * density * (1 + 3 * a + 4.5 * a * a - 1.5 * square) for s, a in along])


def show(line=""):
    """Shows progress on one line, if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)


def simulate(flow, steps, per_region):
    """Runs the flow: times in diameters / U, drag and lift at these, and four pictures of it."""
    solid, weights = flow.solid, flow.force_weights()
    rows, columns = (np.s_[n.min() : n.max() + 1] for n in np.nonzero(weights.any((0, 1))))
    around = np.s_[:, rows, columns]
    weights = jnp.asarray(weights[:, *around])
    advance = jge.graph(partial(flow.advance, steps=per_region), name="flow")

    @jax.jit
    def one_region(f):
        f = advance(f, solid)
        return f, jnp.einsum("kiyx,iyx->k", weights, f[around])

    f = flow.start()
    count = max(1, steps // per_region)
    shots = {max(1, round(count * part)) for part in (0.08, 0.25, 1)}
    forces, pictures = [], []
    start = time.perf_counter()
    for done in range(1, count + 1):
        f, force = one_region(f)
        forces.append(force)
        if done in shots:
            pictures.append((done * per_region, vorticity(f, solid)))
        if done % max(1, count // 100) == 0:
            force.block_until_ready()
            seconds = (time.perf_counter() - start) / done * (count - done)
            show(f"{done * per_region} of {count * per_region} steps, {seconds:.0f} s to go")
    show()
    times = np.arange(1, count + 1) * per_region * MEAN / flow.diameter
    pictures = [(n * MEAN / flow.diameter, flow.diameter / MEAN * w) for n, w in pictures]
    return times, np.asarray(forces), pictures


def vorticity(f, solid):
    """The velocity's curl, (height, width), per step; nan in the cylinder."""
    _, vx, vy = (np.asarray(m) for m in moments(f))
    curl = np.gradient(vy, axis=1) - np.gradient(vx, axis=0)
    return np.where(np.asarray(solid, bool), np.nan, curl)


def strouhal(times, lift):
    """Vortices of one side per diameter / U, from where the lift begins to rise above its mean.

    None if the swing is uneven: periods that differ by more than a twentieth.
    """
    late = times > times[-1] / 2
    times, lift = times[late], lift[late]
    lift = lift - (lift.max() + lift.min()) / 2
    up = np.flatnonzero((lift[:-1] < 0) & (lift[1:] >= 0))
    crossings = times[up] - lift[up] * (times[up + 1] - times[up]) / (lift[up + 1] - lift[up])
    periods = np.diff(crossings)
    if len(periods) < 3 or np.ptp(periods) > periods.mean() / 20:
        return None
    return 1 / periods.mean()


def timed(function, f):
    start = time.perf_counter()
    result = jax.block_until_ready(function(f))
    return result, time.perf_counter() - start


def measure(name, advance, flow, steps):
    """Runs a number of steps several times: the flow after it, and seconds per step."""
    show(f"{name}: getting ready")
    solid = flow.solid
    run = jax.jit(lambda f: advance(f, solid, steps)).lower(flow.start()).compile()
    show(f"{name}: running")
    result, _ = timed(run, flow.start())  # the first run loads kernels and warms up
    seconds = []
    while len(seconds) < RUNS[0] or (len(seconds) < RUNS[1] and sum(seconds) < 0.5):
        seconds.append(timed(run, flow.start())[1])
    return np.asarray(result), median(seconds) / steps


def loss_in_a_box(steps=200):
    """The relative change of mass of fluid in a closed box over a number of steps."""
    show("a closed box")
    box = Flow(10)
    solid = box.solid.at[:, [0, -1]].set(1)
    velocity = np.random.default_rng(0).uniform(-FASTEST, FASTEST, (2, *box.shape))
    f = equilibrium(1.0, *jnp.asarray(velocity, jnp.float32))
    after = jax.jit(lambda f: box.advance(f, solid, steps))(f)
    fluid = np.asarray(solid) == 0
    before, after = (np.asarray(x)[:, fluid].sum(dtype=np.float64) for x in (f, after))
    return abs(after / before - 1)


def draw(flow, times, forces, number, pictures, out):
    """Writes the flow at three times, and the forces on the cylinder."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.2 * len(pictures) + 3.2), dpi=130, layout="constrained")
    figure.suptitle(f"Flow past a cylinder in a channel, Reynolds number {REYNOLDS}")
    *strips, below = figure.subplots(
        len(pictures) + 1, 1, height_ratios=[1.0] * len(pictures) + [1.2]
    )
    height, width = (n / flow.diameter for n in flow.shape)
    for axes, (at, curl) in zip(strips, pictures, strict=True):
        image = axes.imshow(
            curl, cmap="RdBu_r", vmin=-5, vmax=5, origin="lower", extent=(0, width, 0, height)
        )
        axes.set_facecolor("0.35")  # the cylinder
        axes.set_title(f"t = {at:.1f} D/U", fontsize=10, loc="left")
        axes.set(ylabel="y / D", xticks=range(0, 23, 2), yticks=range(5))
    strips[-1].set_xlabel("x / D")
    bar = figure.colorbar(image, ax=strips, extend="both", fraction=0.03, pad=0.01)
    bar.set_label("vorticity in U/D; red turns anticlockwise")
    below.plot(times, forces[:, 0], label="drag coefficient")
    below.plot(times, forces[:, 1], label="lift coefficient")
    below.set(
        xlim=(0, times[-1]),
        ylim=(-2, 5),
        xlabel="time in D/U",
        ylabel="drag or lift / (½ density U² D)",
    )
    below.set_title(
        "sound from the sudden start dies away"
        + (f"; Strouhal number {number:.3f}" if number else ""),
        fontsize=10,
        loc="left",
    )
    below.legend(loc="upper right", ncols=2)
    below.grid(alpha=0.3)
    figure.savefig(out)


def draw_if_possible(out, draw, *arguments):
    """The picture's line in the output; only the picture needs matplotlib."""
    try:
        draw(*arguments, out)
    except ModuleNotFoundError as error:
        return f"none was drawn: {error.name} is missing; pip install matplotlib"
    return str(out)


def parse(arguments):
    parser = argparse.ArgumentParser(description="A vortex street by a lattice-Boltzmann kernel.")
    parser.add_argument("--size", type=int, help="nodes across the cylinder (GPU: 100, CPU: 20)")
    parser.add_argument("--steps", type=int, help="time steps (as many as the flow needs)")
    parser.add_argument("--out", type=Path, default=Path("lattice_boltzmann.png"), help="picture")
    parser.add_argument("--quick", action="store_true", help="a coarse lattice, for a few seconds")
    options = parser.parse_args(arguments)
    on_gpu = jax.default_backend() == "gpu"
    if options.size is None:
        options.size = 10 if options.quick else 100 if on_gpu else 20
    if options.size < 10:
        parser.error("--size: 10 nodes or more are expected; the flow is unstable on fewer")
    if options.steps is None:
        units = EVEN_AFTER + (6 if options.quick else 50 if on_gpu else 12)
        options.steps = round(units * options.size / MEAN)
    if options.steps < 2 * options.size:
        parser.error(f"--steps: {2 * options.size} or more are expected with this size")
    if not options.out.absolute().parent.is_dir():
        parser.error(f"--out: there is no folder {options.out.parent}")
    return options


def main(arguments=None):
    options = parse(arguments)
    flow, per_region = Flow(options.size), 2 * options.size
    ways = {
        "jax.jit": flow.advance,
        "jge.graph": jge.graph(flow.advance, static_argnums=2),
        "jax.numpy": flow.advance_in_numpy,
    }
    measured = {name: measure(name, way, flow, per_region) for name, way in ways.items()}
    *cuda, reference = (result for result, _ in measured.values())
    difference = np.max([np.abs(result - reference).max() for result in cuda])
    loss = loss_in_a_box()
    times, forces, pictures = simulate(flow, options.steps, per_region)
    number = strouhal(times, forces[:, 1])
    picture = draw_if_possible(options.out, draw, flow, times, forces, number, pictures)

    height, width = flow.shape
    off = 0 if flow.diameter >= FINE else OFF_WHERE_COARSE
    low, high = PUBLISHED[0] * (1 - off), PUBLISHED[1] * (1 + off)
    print(f"""\
flow         {width} x {height} nodes, {flow.diameter} across the cylinder; {options.steps} steps
device       {str(jge.device_info()).splitlines()[0]}

             one step      nodes per second""")
    for name, (_, seconds) in measured.items():
        rate = width * height / seconds / 1e6
        print(f"{name:<12}{1000 * seconds:>9.4f} ms{rate:>14.0f} million")
    found = "not even yet" if number is None else f"{number:.4f}"
    print(f"""
difference   {difference:.1e} from jax.numpy after {per_region} steps; {DIFFERENCE:.0e} is accepted
mass         {loss:.1e} of it lost or gained in a closed box; {LOSS:.0e} is accepted
Strouhal     {found}; published: {PUBLISHED[0]} to {PUBLISHED[1]}; accepted: {low:.4f} to {high:.4f}
picture      {picture}""")
    wrong = []
    if not difference < DIFFERENCE:
        wrong.append("The kernel and jax.numpy disagree: see 'difference' above.")
    if not loss < LOSS:
        wrong.append("The kernel does not keep the mass of a closed box.")
    if (number is None and times[-1] >= EVEN_AFTER) or (number and not low <= number <= high):
        wrong.append("The vortices do not come as often as published.")
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
