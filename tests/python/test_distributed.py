"""Kernels in several processes: JAX's own engine moves the data, each process runs its parts."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

PROCESSES = 2
DEVICES = 2  # of each process
SECONDS = 240


def worker(rank, address):
    """One of the processes."""
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, PROCESSES, rank, initialization_timeout=60)
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P
    from test_sharding import affine, affine_in_numpy, caught, gathers, make_affine

    import jax_graphenc as jge

    assert jax.process_count() == PROCESSES
    assert len(jax.devices()) == PROCESSES * DEVICES
    mesh = jax.make_mesh((PROCESSES * DEVICES,), ("d",), axis_types=(AxisType.Auto,))
    whole_x = np.linspace(0, 1, 16 * 8, dtype=np.float32).reshape(16, 8)
    whole_w = np.linspace(2, 3, 8, dtype=np.float32)

    def put(x, *spec):
        sharding = NamedSharding(mesh, P(*spec))
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    def close(got, want):
        assert len(got.addressable_shards) == DEVICES
        for shard in got.addressable_shards:
            np.testing.assert_allclose(shard.data, want[shard.index], rtol=1e-5, atol=1e-5)

    x, w = put(whole_x, "d"), put(whole_w)
    want = affine_in_numpy(whole_x, whole_w)
    # By its rule: nothing moves.
    assert not gathers(affine, x, w)
    y = jax.jit(affine)(x, w)
    assert y.sharding.is_equivalent_to(x.sharding, 2)
    close(y, want)
    # Its derivative sums over the processes.
    gradient = jax.jit(jax.grad(lambda x, w: (affine(x, w) ** 2).sum(), 1))(x, w)
    close(gradient, 2 * want.sum(0))
    # In shard_map, as a region, with a collective.
    region = jge.graph(lambda x, w: affine(affine(x, w), w))
    f = jax.jit(
        jax.shard_map(
            lambda x, w: jax.lax.psum(jnp.sum(region(x, w), 0), "d"),
            mesh=mesh,
            in_specs=(P("d"), P()),
            out_specs=P(),
        )
    )
    close(f(x, w), (4 * whole_x + 3 * whole_w).sum(0))
    # Without a rule: gathered over the processes, and right.
    y, found = caught(jax.jit(make_affine()), x, w)
    close(y, want)
    assert len(found) == 1
    print("done", rank, flush=True)
    jax.distributed.shutdown()


def test_two_processes(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    logs = [tmp_path / f"{rank}.log" for rank in range(PROCESSES)]
    processes = []
    try:
        for rank, log in enumerate(logs):
            code = f"import test_distributed; test_distributed.worker({rank}, {address!r})"
            with log.open("w") as file:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-c", code],
                        env=environment,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                    )
                )
        # A process that fails leaves the others waiting for it, until JAX's own timeout.
        codes = [process.wait(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        output = "\n".join(log.read_text() for log in logs if log.exists())
    assert codes == [0] * PROCESSES, output
    assert all(f"done {rank}" in output for rank in range(PROCESSES)), output
