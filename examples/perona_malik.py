"""Smooths a photograph but keeps its edges, with three CUDA kernels in a loop of time steps.

Brightness flows between neighbouring pixels as heat does, but hardly across edges: noise evens out,
outlines stay (Perona and Malik, "Scale-space and edge detection using anisotropic diffusion", IEEE
PAMI 12(7), 1990). Edges are found in a slightly smoothed picture, so that noise is not taken for
one (Catte et al., SIAM J. Numer. Anal. 29(1), 1992).

    python examples/perona_malik.py                            a noisy photograph; writes demo.png
    python examples/perona_malik.py --image me.jpg --noise 0 --out smooth.png

The same function runs twice inside ``jax.jit``: as it is, where XLA calls three kernels in each
step, and as a region (``jge.graph``), where all steps are one custom call. The kernels run on the
GPU or, where there is none, on the CPU. Both results are compared with the same algorithm in
jax.numpy; the exit status is 1 if they disagree.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.cbook import get_sample_data
from matplotlib.figure import Figure
from PIL import Image, ImageOps
from rich.console import Console

import jax_graphenc as jge

# A picture is three planes, not triples, so that a warp's 32 threads read 32 adjacent floats.
CUDA = r"""
// The thread's pixel and its neighbours, as indices into a plane. At the border of the picture a
// pixel is its own neighbour, so nothing flows out.
struct Pixel {
  int here, left, right, above, below;
  bool inside;
};

__device__ Pixel pixel_of_thread(int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  const int i = y * width + x;
  return {i, x > 0 ? i - 1 : i, x + 1 < width ? i + 1 : i, y > 0 ? i - width : i,
          y + 1 < height ? i + width : i, x < width && y < height};
}

// Luminance (Rec. 709), in which the channels' edges are found, averaged with the neighbours'.
extern "C" __global__ void luminance(const float* __restrict__ rgb, float* __restrict__ luma,
                                     int width, int height) {
  const Pixel p = pixel_of_thread(width, height);
  if (!p.inside) return;
  const float weights[3] = {0.2126f, 0.7152f, 0.0722f};
  float sum = 0.0f;
  for (int channel = 0; channel < 3; ++channel) {
    const float* u = rgb + channel * width * height;
    sum += weights[channel] *
           (0.5f * u[p.here] + 0.125f * (u[p.left] + u[p.right] + u[p.above] + u[p.below]));
  }
  luma[p.here] = sum;
}

// How well a pixel conducts to its right and to the one below: 1 where the picture is flat,
// 1/2 where luminance steps by `contrast`, and nearly 0 at an edge.
extern "C" __global__ void conductance(const float* __restrict__ luma,
                                       float* __restrict__ to_right, float* __restrict__ to_below,
                                       float contrast, int width, int height) {
  const Pixel p = pixel_of_thread(width, height);
  if (!p.inside) return;
  const float dx = (luma[p.right] - luma[p.here]) / contrast;
  const float dy = (luma[p.below] - luma[p.here]) / contrast;
  to_right[p.here] = 1.0f / (1.0f + dx * dx);
  to_below[p.here] = 1.0f / (1.0f + dy * dy);
}

// A time step: every pixel gains what flows in from its neighbours. A thread does all channels,
// since they share the four conductances: their edges stay together.
extern "C" __global__ void diffuse(const float* __restrict__ rgb,
                                   const float* __restrict__ to_right,
                                   const float* __restrict__ to_below, float* __restrict__ next,
                                   float dt, int width, int height) {
  const Pixel p = pixel_of_thread(width, height);
  if (!p.inside) return;
  const float left = to_right[p.left], right = to_right[p.here];
  const float above = to_below[p.above], below = to_below[p.here];
  for (int channel = 0; channel < 3; ++channel) {
    const float* u = rgb + channel * width * height;
    const float here = u[p.here];
    const float inflow = left * (u[p.left] - here) + right * (u[p.right] - here) +
                         above * (u[p.above] - here) + below * (u[p.below] - here);
    next[channel * width * height + p.here] = here + dt * inflow;
  }
}
"""

CONTRAST = 0.01  # the step in luminance at which conductance is 1/2; full scale is 1
DT = 0.2  # time step; the scheme is stable up to 1/4
BLOCK = (32, 16)  # a warp is a row of the block
RUNS = 3, 20  # timed runs for a median: as many as fit into a second, within these bounds
TOLERANCE = 1e-4  # the tolerance of differences from jax.numpy


def grid(image, *_, **__):
    """Enough blocks to cover the picture; the last ones may reach beyond it."""
    height, width = image.shape[-2:]
    return jge.cdiv(width, BLOCK[0]), jge.cdiv(height, BLOCK[1])


# The grid and the outputs' shapes are functions of the inputs: a kernel takes any size of picture.
kernel = partial(jge.cuda_kernel, CUDA, grid=grid, block=BLOCK)
luminance = kernel(
    "luminance", out_shape=lambda rgb: jax.ShapeDtypeStruct(rgb.shape[1:], rgb.dtype)
)
conductance = kernel("conductance", out_shape=lambda luma: (luma, luma))
diffuse = kernel("diffuse", out_shape=lambda rgb: rgb)


def edges(rgb):
    """The conductances to the right and below, each (height, width), of a picture."""
    size = {"width": rgb.shape[2], "height": rgb.shape[1]}
    return conductance(luminance(rgb, **size), contrast=CONTRAST, **size)


def smooth(rgb, iterations):
    """The diffusion of a picture: (3, height, width), float32, 0 to 1."""

    def step(_, u):
        return diffuse(u, *edges(u), dt=DT, width=u.shape[2], height=u.shape[1])

    return jax.lax.fori_loop(0, iterations, step, rgb)


def smooth_reference(rgb, iterations):
    """The same in jax.numpy, written as the flux through each face between two pixels."""

    def step(_, u):
        luma = 0.2126 * u[0] + 0.7152 * u[1] + 0.0722 * u[2]
        p = jnp.pad(luma, 1, mode="edge")
        luma = luma / 2 + (p[1:-1, :-2] + p[1:-1, 2:] + p[:-2, 1:-1] + p[2:, 1:-1]) / 8
        inflow = jnp.zeros_like(u)
        for axis, border in (1, ((0, 0), (1, 1), (0, 0))), (2, ((0, 0), (0, 0), (1, 1))):
            g = 1 / (1 + (jnp.diff(luma, axis=axis - 1) / CONTRAST) ** 2)
            inflow += jnp.diff(jnp.pad(g * jnp.diff(u, axis=axis), border), axis=axis)
        return u + DT * inflow

    return jax.lax.fori_loop(0, iterations, step, rgb)


def timed(function, *arguments):
    start = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return result, time.perf_counter() - start


def measure(name, function, rgb, console):
    """Compiles and runs a function: its result, times in seconds, and the package's counts."""
    with console.status(f"{name}: getting ready") as progress:
        jge.reset_stats()
        run, ready_s = timed(lambda: jax.jit(function).lower(rgb).compile())
        compiled = jge.stats()["compiled"]
        progress.update(f"{name}: running")
        result, _ = timed(run, rgb)  # the first run loads kernels and warms up
        seconds = []
        while len(seconds) < RUNS[0] or (len(seconds) < RUNS[1] and sum(seconds) < 1):
            jge.reset_stats()
            seconds.append(timed(run, rgb)[1])
    return SimpleNamespace(
        name=name,
        result=np.asarray(result),
        ready_s=ready_s,
        run_s=median(seconds),
        custom_calls=run.as_text().count('custom_call_target="jax_graphenc.'),
        compiled=compiled,
        stats=jge.stats(),  # of the last run
    )


def load(path, noise):
    """A photograph as (3, height, width), float32, 0 to 1, with noise."""
    photograph = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    rgb = np.asarray(photograph, np.float32).transpose(2, 0, 1) / 255
    rgb += np.random.default_rng(seed=0).normal(0, noise, rgb.shape)
    return jnp.asarray(rgb.clip(0, 1))


def draw(before, after, iterations, out):
    """Writes the picture before and after, and its edges, each with a detail."""
    panels = {
        "Before": before.transpose(1, 2, 0),
        f"After {iterations} iterations": after.transpose(1, 2, 0).clip(0, 1),
        "Conductance: dark at edges": np.mean(edges(after), axis=0),
    }
    height, width = before.shape[1:]
    detail = np.s_[height // 25 : height * 2 // 5, width * 7 // 25 : width * 19 // 25]
    ratios = height / width, 0.75 * height / width  # a panel's height over its width
    figure = Figure(figsize=(12, 4 * sum(ratios) + 0.25), dpi=150, layout="constrained")
    columns = figure.subplots(2, 3, gridspec_kw={"height_ratios": ratios}).T
    for (title, image), (whole, part) in zip(panels.items(), columns, strict=True):
        whole.set_title(title, fontsize=16)
        for axes, shown in (whole, image), (part, image[detail]):
            axes.imshow(shown, cmap="gray", vmin=0, vmax=1)
            axes.set_axis_off()
    figure.savefig(out)


def report(measured, difference, rgb, options):
    lone, region, _ = measured
    n, (height, width) = options.iterations, rgb.shape[1:]
    blocks, threads = (" x ".join(map(str, dims)) for dims in (grid(rgb), BLOCK))
    counts = ", ".join(f"{name} {count}" for name, count in region.stats.items() if count)
    print(f"""\
photograph   {options.image.name}, {width} x {height} pixels, noise {options.noise:g}
device       {str(jge.device_info()).splitlines()[0]}
kernels      luminance, conductance, diffuse: {"compiled" if lone.compiled else "from cache"}
grid         {blocks} blocks of {threads} threads each
one run      {n} iterations, {3 * n} kernels

             custom calls in the HLO   ready after   one iteration""")
    for m in measured:
        calls, ms = m.custom_calls or "none", 1000 * m.run_s / n
        print(f"{m.name:<13}{calls:>23}{m.ready_s:>12.2f} s{ms:>13.4f} ms")
    print(f"""
jge.stats()  of a run of the region: {counts}
difference   {difference:.1e} of full scale at most; less than {TOLERANCE:.0e} is accepted
picture      {options.out}""")


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Perona-Malik diffusion in CUDA, inside jax.jit.")
    photograph = Path(get_sample_data("grace_hopper.jpg", asfileobj=False))
    parser.add_argument("--iterations", type=int, default=100, help="time steps (%(default)s)")
    parser.add_argument("--image", type=Path, default=photograph, help="any picture")
    parser.add_argument("--noise", type=float, default=0.05, help="noise to add (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("demo.png"), help="(%(default)s)")
    options = parser.parse_args(arguments)
    if options.iterations < 1:
        parser.error("--iterations: 1 or more is expected")
    if not options.out.absolute().parent.is_dir():
        parser.error(f"--out: there is no folder {options.out.parent}")
    try:
        rgb = load(options.image, options.noise)
    except OSError as error:
        parser.error(f"--image: {error}")

    steps = partial(smooth, iterations=options.iterations)
    in_numpy = partial(smooth_reference, iterations=options.iterations)
    ways = {"jax.jit": steps, "jge.graph": jge.graph(steps), "jax.numpy": in_numpy}
    console = Console()
    measured = [measure(name, function, rgb, console) for name, function in ways.items()]
    *cuda, reference = (m.result for m in measured)
    difference = np.max([np.abs(result - reference).max() for result in cuda])
    draw(rgb, cuda[-1], options.iterations, options.out)
    report(measured, difference, rgb, options)
    if difference < TOLERANCE:
        return 0
    print("The CUDA kernels and jax.numpy disagree: see 'difference' above.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
