"""Trains a network whose norm and activation are CUDA kernels, with their derivatives in CUDA too.

The network separates points on two spirals that wind around each other. It is written for one
point, with RMS norms (Zhang and Sennrich, 2019) and SwiGLU activations (Shazeer, 2020) that are
kernels; matrix products and the optimizer, Adam, are jax.numpy.

    python examples/train_network.py                          writes train_network.png
    python examples/train_network.py --size 64 --steps 1000

- ``defvjp`` gives each kernel its derivative, which is another kernel; ``jax.grad`` does the rest.
- ``jax.vmap`` makes a batch of the network for one point. With ``vmap="broadcast_all"`` a batch is
  one launch, with a block for each row.
- ``reference=`` is the same function in jax.numpy, for comparison.

A region (``jge.graph``) gains nothing here, because a matrix product runs between any two kernels;
it is timed to show that.

The kernels run on the GPU or, where there is none, on the CPU. The gradients are compared with
those of the same network in jax.numpy, and the trained network must classify unseen points; the
exit status is 1 if either fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

CUDA = r"""
__device__ float sum_of_warp(float value) {
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffff, value, offset);
  return value;
}

// 1 / rms of a row, by a warp.
__device__ float scale_of(const float* x, int columns) {
  float squares = 0;
  for (int c = threadIdx.x; c < columns; c += 32) squares += x[c] * x[c];
  return rsqrtf(sum_of_warp(squares) / columns + 1e-6f);
}

// A warp to a row: y = gain x / rms(x).
extern "C" __global__ void rms_norm(const float* __restrict__ x, const float* __restrict__ gain,
                                    float* __restrict__ y, int columns) {
  const int first = blockIdx.x * columns;
  const float scale = scale_of(x + first, columns);
  for (int i = first + threadIdx.x; i < first + columns; i += 32) y[i] = gain[i] * x[i] * scale;
}

// The derivatives by x and gain, given that by y. The scale is made again: that costs less than to
// keep it.
extern "C" __global__ void rms_norm_backward(const float* __restrict__ x,
                                             const float* __restrict__ gain,
                                             const float* __restrict__ dy, float* __restrict__ dx,
                                             float* __restrict__ dgain, int columns) {
  const int first = blockIdx.x * columns;
  const float scale = scale_of(x + first, columns);
  float along = 0;  // the part of the derivative that only makes x longer, which changes nothing
  for (int i = first + threadIdx.x; i < first + columns; i += 32)
    along += gain[i] * dy[i] * x[i] * scale;
  along = sum_of_warp(along) / columns;
  for (int i = first + threadIdx.x; i < first + columns; i += 32) {
    dx[i] = scale * (gain[i] * dy[i] - along * x[i] * scale);
    dgain[i] = dy[i] * x[i] * scale;
  }
}

__device__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

// A block to a row: gate sigmoid(gate) value.
extern "C" __global__ void swiglu(const float* __restrict__ gate, const float* __restrict__ value,
                                  float* __restrict__ out, int columns) {
  const int first = blockIdx.x * columns;
  for (int i = first + threadIdx.x; i < first + columns; i += blockDim.x)
    out[i] = gate[i] * sigmoid(gate[i]) * value[i];
}

extern "C" __global__ void swiglu_backward(const float* __restrict__ gate,
                                           const float* __restrict__ value,
                                           const float* __restrict__ dout,
                                           float* __restrict__ dgate, float* __restrict__ dvalue,
                                           int columns) {
  const int first = blockIdx.x * columns;
  for (int i = first + threadIdx.x; i < first + columns; i += blockDim.x) {
    const float s = sigmoid(gate[i]);
    dgate[i] = dout[i] * value[i] * s * (1 + gate[i] * (1 - s));
    dvalue[i] = dout[i] * gate[i] * s;
  }
}
"""


def rms_norm_in_numpy(x, gain, **_):
    return gain * x * jax.lax.rsqrt(jnp.mean(x * x) + 1e-6)


def swiglu_in_numpy(gate, value, **_):
    return jax.nn.silu(gate) * value


# A block for each row. Rows are the batch, so there is one without jax.vmap.
kernel = partial(
    jge.cuda_kernel,
    CUDA,
    grid=lambda x, *_, columns, **__: x.size // columns,
    values={"columns": lambda x, *_, **__: x.shape[-1]},
    vmap="broadcast_all",
)
one = {"out_shape": lambda x, *_, **__: x}
two = {"out_shape": lambda x, *_, **__: (x, x)}
rms_norm = kernel("rms_norm", block=32, reference=rms_norm_in_numpy, **one)
rms_norm_backward = kernel("rms_norm_backward", block=32, **two)
swiglu = kernel("swiglu", block=128, reference=swiglu_in_numpy, **one)
swiglu_backward = kernel("swiglu_backward", block=128, **two)
for forward, backward in (rms_norm, rms_norm_backward), (swiglu, swiglu_backward):
    forward.defvjp(
        lambda *inputs, columns, forward=forward: (forward(*inputs, columns=columns), inputs),
        lambda inputs, dout, columns, backward=backward: backward(*inputs, dout, columns=columns),
    )

LEARNING_RATE = 3e-3  # for a width of 32; less for wider networks
# Tolerances: of gradients, relative to each array's largest, and of the fraction right.
DIFFERENCE, KNOWN = 1e-4, 0.95
PER_CALL = 10  # steps between two readings of the loss
RUNS = (
    3,
    20,
)  # timed runs for a median: as many as fit into half a second, within these bounds


def spirals(random, count, turns):
    """Points on two spirals, (count, 2), and the spiral of each, (count,): 1 or -1."""
    side = np.where(np.arange(count) % 2, 1, -1)
    angle = 2 * np.pi * turns * np.sqrt(random.uniform(0.02, 1, count))
    radius = side * angle / (2 * np.pi * turns)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    points += random.normal(0, 0.015, points.shape)
    return jnp.asarray(points, jnp.float32), jnp.asarray(side, jnp.float32)


def initial(random, width, layers):
    """The network's parameters; hidden layers are twice as wide as the layers between them."""

    def matrix(rows, columns, scale=1.0):
        return jnp.asarray(random.normal(0, scale * columns**-0.5, (rows, columns)), jnp.float32)

    def layer():
        return {
            "gain": jnp.ones(width),
            "gate": matrix(2 * width, width),
            "value": matrix(2 * width, width),
            "out": matrix(width, 2 * width, layers**-0.5),
        }

    return {
        "in": matrix(width, 2, 3.0),
        "shift": matrix(width, 1)[:, 0],
        "layers": [layer() for _ in range(layers)],
        "gain": jnp.ones(width),
        "out": matrix(1, width)[0],
    }


def network(parameters, point, norm=rms_norm, activation=swiglu):
    """The network's score of one point, (2,), for spiral 1 against spiral -1."""
    x = parameters["in"] @ point + parameters["shift"]
    for layer in parameters["layers"]:
        y = norm(x, layer["gain"])
        x += layer["out"] @ activation(layer["gate"] @ y, layer["value"] @ y)
    return parameters["out"] @ norm(x, parameters["gain"])


network_in_numpy = partial(network, norm=rms_norm_in_numpy, activation=swiglu_in_numpy)


def loss(parameters, points, sides, network=network):
    """The mean of the cross entropy."""
    each = jax.vmap(network, (None, 0))(parameters, points)
    return jnp.mean(jax.nn.softplus(-sides * each))


def known(parameters, points, sides):
    """The fraction of points that the network classifies right."""
    each = jax.vmap(network, (None, 0))(parameters, points)
    return jnp.mean(each * sides > 0)


def train(state, points, sides, steps, loss=loss):
    """Steps of Adam on all points: parameters, moments and count, and the losses."""
    learning_rate = LEARNING_RATE * (32 / state[0]["gain"].size) ** 0.5

    def step(state, _):
        parameters, first, second, count = state
        value, gradient = jax.value_and_grad(loss)(parameters, points, sides)
        count += 1
        rate = learning_rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
        parameters = jax.tree.map(
            lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), parameters, first, second
        )
        return (parameters, first, second, count), value

    return jax.lax.scan(step, state, length=steps)


def untrained(parameters):
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    return parameters, zeros, zeros, jnp.float32(0)


def show(line=""):
    """Shows progress on one line, if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)


def timed(function, *arguments):
    begin = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return result, time.perf_counter() - begin


def measure(name, loss, state, points, sides):
    """The compiled training, its custom calls, and seconds per step."""
    show(f"{name}: getting ready")
    function = partial(train, steps=PER_CALL, loss=loss)
    run = jax.jit(function).lower(state, points, sides).compile()
    show(f"{name}: running")
    timed(run, state, points, sides)  # the first run loads kernels and warms up
    seconds = []
    while len(seconds) < RUNS[0] or (len(seconds) < RUNS[1] and sum(seconds) < 0.5):
        seconds.append(timed(run, state, points, sides)[1])
    calls = run.as_text().count('custom_call_target="jax_graphenc.')
    return run, calls, median(seconds) / PER_CALL


def largest_difference(parameters, points, sides):
    """The gradients' largest error against jax.numpy, relative to each array's largest element."""
    show("gradients")
    with jax.default_matmul_precision("highest"):  # a GPU would round to ten bits
        cuda, reference = (
            jax.jit(jax.grad(partial(loss, network=which)))(parameters, points, sides)
            for which in (network, network_in_numpy)
        )
    pairs = zip(jax.tree.leaves(cuda), jax.tree.leaves(reference), strict=True)
    return np.max([jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)) for a, b in pairs])


def train_and_show(run, state, seen, unseen, calls):
    """The final state, losses, fractions right of unseen points, and two sets of parameters."""
    count_known = jax.jit(known)
    losses, parts, kept = [], [], []
    for call in range(1, calls + 1):
        state, values = run(state, *seen)
        losses.extend(np.asarray(values))
        parts.append(float(count_known(state[0], *unseen)))
        if call in (max(1, calls // 6), calls):
            kept.append((call * PER_CALL, state[0]))
        steps = f"{call * PER_CALL} of {calls * PER_CALL} steps"
        show(f"{steps}, loss {losses[-1]:.4f}, {parts[-1]:.1%} of unseen points known")
    return losses, parts, kept


def draw(losses, parts, kept, unseen, out):
    """Writes the loss, and the network's map of the spirals, early and at the end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4.8), dpi=130, layout="constrained")
    curve, *maps = figure.subplots(1, 1 + len(kept), width_ratios=[1.1] + [1] * len(kept))
    curve.semilogy(np.arange(1, len(losses) + 1), losses, label="loss")
    curve.set(xlabel="step", ylabel="cross entropy, all points trained on", xlim=(0, len(losses)))
    curve.grid(alpha=0.3)
    right = curve.twinx()
    at = np.arange(1, len(parts) + 1) * PER_CALL
    right.plot(at, 100 * np.array(parts), "C1.-", label="known")
    right.set(ylim=(40, 102), ylabel="unseen points known, in %")
    curve.set_title("Training")
    curve.legend(handles=[*curve.lines, *right.lines], loc="lower left")

    side = np.linspace(-1.15, 1.15, 120)
    x, y = np.meshgrid(side, side)
    grid = jnp.asarray(np.stack([x.ravel(), y.ravel()], axis=1), jnp.float32)
    evaluate = jax.jit(jax.vmap(network, (None, 0)))
    points, sides = map(np.asarray, unseen)
    points, sides = points[:600], sides[:600]
    for axes, (step, parameters) in zip(maps, kept, strict=True):
        sure = np.asarray(jax.nn.sigmoid(evaluate(parameters, grid))).reshape(x.shape)
        image = axes.pcolormesh(x, y, sure, cmap="RdBu_r", vmin=-0.5, vmax=1.5, shading="gouraud")
        axes.contour(x, y, sure, [0.5], colors="k", linewidths=0.8)
        for which, colour in (1, "firebrick"), (-1, "navy"):
            axes.scatter(*points[sides == which].T, s=9, color=colour, ec="w", lw=0.4)
        axes.set(aspect="equal", xlabel="x", ylabel="y")
        axes.set_title(f"After {step} steps, with points not trained on")
    bar = figure.colorbar(image, ax=maps, label="probability of the red spiral", pad=0.01)
    bar.ax.set_ylim(0, 1)  # the map is pale so that points stand out
    figure.savefig(out)


def draw_if_possible(out, draw, *arguments):
    """The picture's line in the output; only the picture needs matplotlib."""
    try:
        draw(*arguments, out)
    except ModuleNotFoundError as error:
        return f"none was drawn: {error.name} is missing; pip install matplotlib"
    return str(out)


def parse(arguments):
    parser = argparse.ArgumentParser(description="A network with kernels, and its training.")
    parser.add_argument("--size", type=int, help="width of the network (GPU: 256, CPU: 32)")
    parser.add_argument("--steps", type=int, help="of the optimizer (GPU: 600, CPU: 400)")
    parser.add_argument("--out", type=Path, default=Path("train_network.png"), help="picture")
    parser.add_argument("--quick", action="store_true", help="a small network, in a few seconds")
    options = parser.parse_args(arguments)
    on_gpu = jax.default_backend() == "gpu"
    options.turns, options.layers = (2, 2) if options.quick else (3, 3)
    options.points = 200 if options.quick else 8192 if on_gpu else 400
    if options.size is None:
        options.size = 16 if options.quick else 256 if on_gpu else 32
    if options.steps is None:
        options.steps = 160 if options.quick else 600 if on_gpu else 400
    if options.size < 1:
        parser.error("--size: 1 or more is expected")
    if options.steps < PER_CALL:
        parser.error(f"--steps: {PER_CALL} or more are expected")
    if not options.out.absolute().parent.is_dir():
        parser.error(f"--out: there is no folder {options.out.parent}")
    return options


def main(arguments=None):
    options = parse(arguments)
    random = np.random.default_rng(0)
    parameters = initial(random, options.size, options.layers)
    seen, unseen = (spirals(random, options.points, options.turns) for _ in range(2))
    state = untrained(parameters)
    difference = largest_difference(parameters, *seen)
    ways = {
        "jax.jit": loss,
        "jge.graph": jge.graph(loss),
        "jax.numpy": partial(loss, network=network_in_numpy),
    }
    measured = {name: measure(name, way, state, *seen) for name, way in ways.items()}
    losses, parts, kept = train_and_show(
        measured["jax.jit"][0], state, seen, unseen, options.steps // PER_CALL
    )
    show("drawing")
    picture = draw_if_possible(options.out, draw, losses, parts, kept, unseen)
    show()

    count = sum(leaf.size for leaf in jax.tree.leaves(parameters))
    print(f"""\
network      {options.layers} layers, width {options.size}, {count} parameters; seed 0
points       {options.points} on two spirals, in every step; as many that are not seen
device       {str(jge.device_info()).splitlines()[0]}

             custom calls in the HLO     one step""")
    for name, (_, calls, seconds) in measured.items():
        print(f"{name:<13}{calls or 'none':>23}{1000 * seconds:>10.3f} ms")
    print(f"""
loss         {losses[0]:.3f} at first, {losses[-1]:.1e} after {len(losses)} steps
gradients    {difference:.1e} from jax.numpy; {DIFFERENCE:.0e} is accepted
known        {parts[-1]:.1%} of the unseen points; {KNOWN:.0%} is expected
picture      {picture}""")
    wrong = []
    if not difference < DIFFERENCE:
        wrong.append("The gradients are not those of jax.numpy: see 'gradients' above.")
    if not parts[-1] >= KNOWN:
        wrong.append("The network has not learned the spirals.")
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
