"""Trains the LSTM that Apollo compares with Delphi (apollo.md 4.3.2), and writes its results for
the laboratory.

    scripts/lstm.py --traces crates/lab/traces --out crates/lab/data/lstm.json

The network has four layers of 50 cells and one sum; it predicts one step from a window of 16
values. A layer of 50 cells with n inputs has 200 (n + 50 + 1) parameters. The paper's 71,851 are
11,200 + 3 * 20,200 + 51, so its first layer has five inputs: each step sees the last five values
(`--inputs 5`). With one input there are 71,051 parameters. There are two trainings:

    own  one network for each series, as the authors did, trained on the first half of its
         recording, scaled to 0..1 by the range of that half;
    one  one network for all series, trained on all first halves and on generated series; each
         window is moved and scaled by itself.

The second halves (`test`), and `holdout` if it exists, are only predicted. The script needs jax
(0.10 was used), which nothing else in the repository does. The seed is fixed; the same machine and
release give the same results, except for times.
"""

import argparse
import csv
import gzip
import json
import platform
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

CELLS = 50
LAYERS = 4
WINDOW = 16
BATCH = 32
RATE = 1e-3
DROP = 0.2
SEED = 1
# Steps longer than this many mean steps of their window are cut to that length in training.
CUT = 10.0
WORKLOADS = (
    "bursty",
    "checkpoint",
    "fill",
    "hacc-irregular",
    "hacc-regular",
    "log-rotate",
    "machine",
    "mixed",
    "sequential",
    "small-files",
)
Parameters = list[dict[str, jax.Array]]


def columns(path: Path) -> dict[str, np.ndarray]:
    """The recorded columns, by name without unit."""
    with gzip.open(path, "rt") as file:
        rows = list(csv.reader(line for line in file if not line.startswith("#")))
    values = np.array(rows[1:], dtype=np.float64)
    return {name.split("[")[0]: values[:, at] for at, name in enumerate(rows[0])}


def series(path: Path, workload: str) -> dict[str, np.ndarray]:
    """The three quantities of a recording that are predicted, as in `lab::accuracy`."""
    seen = columns(path)
    kept = "memory_free" if workload == "machine" else "available"
    return {kept: seen[kept], "write rate": np.diff(seen["write_bytes"]), "busy": np.diff(seen["busy_time"]) / 1000}


def made(rng: np.random.Generator, length: int = 600) -> list[np.ndarray]:
    """One series of each generated family; recordings have no part in them."""
    ticks = np.arange(length, dtype=np.float64)
    noise = rng.normal(size=length)
    steady = np.zeros(length)
    for at in range(1, length):
        steady[at] = 0.9 * steady[at - 1] + noise[at]
    changes = rng.random(length) < 1 / 40
    return [
        3 * ticks + noise,
        100 * np.sin(2 * np.pi * ticks / rng.uniform(8, 60)) + 10 * noise,
        np.cumsum(noise),
        steady,
        np.where(rng.random(length) < 0.1, rng.uniform(200, 2000, length), 0.0),
        rng.uniform(0, 2000, length)[np.cumsum(changes)],
        20 * (ticks % int(rng.integers(5, 90))),
        np.floor(ticks / int(rng.integers(2, 12))) * -38_000.0,
    ]


def start(key: jax.Array, inputs: int) -> Parameters:
    """The initial weights of Keras: Glorot uniform, orthogonal for the recurrent ones, 1 for the
    forget bias."""
    layers = []
    for _ in range(LAYERS):
        key, one, two = jax.random.split(key, 3)
        layers.append({
            "input": jax.nn.initializers.glorot_uniform()(one, (inputs, 4 * CELLS)),
            "state": jax.nn.initializers.orthogonal()(two, (CELLS, 4 * CELLS)),
            "bias": jnp.zeros(4 * CELLS).at[CELLS : 2 * CELLS].set(1.0),
        })
        inputs = CELLS
    layers.append({"input": jax.nn.initializers.glorot_uniform()(key, (CELLS, 1)), "bias": jnp.zeros(1)})
    return layers


def count(parameters: Parameters) -> int:
    return sum(array.size for array in jax.tree.leaves(parameters))


def predict(parameters: Parameters, windows: jax.Array, key: jax.Array | None = None) -> jax.Array:
    """Predicts the next values (n) of windows (n, WINDOW); with a key, some cells are dropped as in
    training."""
    inputs = parameters[0]["input"].shape[0]
    steps = range(WINDOW - inputs + 1)
    values = jnp.stack([windows[:, at : at + inputs] for at in steps])
    for layer in parameters[:-1]:
        entering = values @ layer["input"] + layer["bias"]

        def step(carry: tuple[jax.Array, jax.Array], now: jax.Array, state: jax.Array = layer["state"]):
            hidden, cell = carry
            enter, forget, new, leave = jnp.split(now + hidden @ state, 4, axis=-1)
            cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
            hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
            return (hidden, cell), hidden

        nothing = jnp.zeros((windows.shape[0], CELLS))
        _, values = jax.lax.scan(step, (nothing, nothing), entering)
        if key is not None:
            key, mine = jax.random.split(key)
            values = jnp.where(jax.random.bernoulli(mine, 1 - DROP, values.shape), values / (1 - DROP), 0.0)
    return (values[-1] @ parameters[-1]["input"] + parameters[-1]["bias"])[:, 0]


def loss(parameters: Parameters, windows: jax.Array, truths: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.mean((predict(parameters, windows, key) - truths) ** 2)


def adam(parameters: Parameters, first: Parameters, second: Parameters, at: jax.Array, batch: tuple[jax.Array, ...]):
    """One step of the optimizer Adam."""
    slope = jax.grad(loss)(parameters, *batch)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slope)
    rate = RATE * jnp.sqrt(1 - 0.999**at) / (1 - 0.9**at)
    parameters = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-7), parameters, first, second)
    return parameters, first, second


@partial(jax.jit, static_argnames=("rounds", "inputs"))
def train(windows: jax.Array, truths: jax.Array, key: jax.Array, rounds: int, inputs: int):
    """Trains networks side by side: windows (networks, n, WINDOW), `rounds` random batches for each
    network."""
    networks, size = truths.shape
    parameters = jax.vmap(lambda mine: start(mine, inputs))(jax.random.split(key, networks))
    zeros = jax.tree.map(jnp.zeros_like, parameters)

    def step(carry, at):
        parameters, first, second, key = carry
        key, draw, drop = jax.random.split(key, 3)
        rows = jax.random.randint(draw, (networks, BATCH), 0, size)
        batch = (
            jnp.take_along_axis(windows, rows[:, :, None], axis=1),
            jnp.take_along_axis(truths, rows, axis=1),
            jax.random.split(drop, networks),
        )
        stepped = jax.vmap(adam, in_axes=(0, 0, 0, None, 0))(parameters, first, second, at, batch)
        return (*stepped, key), None

    (parameters, *_), _ = jax.lax.scan(step, (parameters, zeros, zeros, key), jnp.arange(1.0, rounds + 1))
    return parameters


def windows_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All windows of a series, and the value after each."""
    return np.lib.stride_tricks.sliding_window_view(values, WINDOW)[:-1], values[WINDOW:]


def by_itself(windows: np.ndarray, truths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows relative to their last value, in units of their mean step; the step is 0 if nothing
    moved."""
    step = np.abs(np.diff(windows, axis=1)).mean(axis=1)
    scale = np.where(step > 0, step, 1)
    last = windows[:, -1:]
    return (windows - last) / scale[:, None], (truths - last[:, 0]) / scale, step


def figures(said: np.ndarray, truths: np.ndarray) -> dict[str, float | None]:
    error = said - truths
    spread = float(((truths - truths.mean()) ** 2).sum())
    return {
        "mae": float(np.abs(error).mean()),
        "rmse": float(np.sqrt((error**2).mean())),
        "r2": 1 - float((error**2).sum()) / spread if spread > 0 else None,
    }


compiled = jax.jit(predict)


class Own:
    """One network for each series."""

    def __init__(self, known: dict[tuple[str, str], np.ndarray], rounds: int, inputs: int) -> None:
        self.names = list(known)
        self.low = {name: values.min() for name, values in known.items()}
        self.span = {name: max(float(np.ptp(values)), 1e-12) for name, values in known.items()}
        pairs = [windows_of((values - self.low[name]) / self.span[name]) for name, values in known.items()]
        size = min(len(truths) for _, truths in pairs)
        windows = np.stack([windows[:size] for windows, _ in pairs])
        truths = np.stack([truths[:size] for _, truths in pairs])
        self.parameters = jax.block_until_ready(train(windows, truths, jax.random.key(SEED), rounds, inputs))

    def say(self, name: tuple[str, str], values: np.ndarray) -> np.ndarray:
        parameters = jax.tree.map(lambda array: array[self.names.index(name)], self.parameters)
        windows, _ = windows_of((values - self.low[name]) / self.span[name])
        return np.asarray(compiled(parameters, jnp.asarray(windows)), dtype=np.float64) * self.span[name] + self.low[name]


class One:
    """One network for all series."""

    def __init__(self, known: list[np.ndarray], rounds: int, inputs: int) -> None:
        rng = np.random.default_rng(SEED)
        all_of = known + [values for _ in range(3) for values in made(rng)]
        scaled = [by_itself(*windows_of(values)) for values in all_of]
        windows = np.concatenate([windows[step > 0] for windows, _, step in scaled])
        truths = np.concatenate([truths[step > 0] for _, truths, step in scaled]).clip(-CUT, CUT)
        self.windows = len(truths)
        parameters = train(windows[None], truths[None], jax.random.key(SEED), rounds, inputs)
        self.parameters = jax.block_until_ready(jax.tree.map(lambda array: array[0], parameters))

    def say(self, values: np.ndarray) -> np.ndarray:
        windows, truths = windows_of(values)
        scaled, _, step = by_itself(windows, truths)
        moves = np.asarray(compiled(self.parameters, jnp.asarray(scaled)), dtype=np.float64)
        return windows[:, -1] + moves * step


def inference_us(parameters: Parameters) -> float:
    """Time of one prediction of one window, compiled, in µs: the median of a thousand."""
    window = jnp.zeros((1, WINDOW))
    compiled(parameters, window).block_until_ready()
    took = []
    for _ in range(1000):
        begun = time.perf_counter()
        compiled(parameters, window).block_until_ready()
        took.append(time.perf_counter() - begun)
    return float(np.median(took) * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--holdout", type=Path, help="a folder of hold-outs, where they are elsewhere")
    parser.add_argument("--inputs", type=int, default=5, help="values that each step sees; the paper's size has 5")
    parser.add_argument("--own-rounds", type=int, default=800, help="batches of 32 for each series")
    parser.add_argument("--one-rounds", type=int, default=8000, help="batches of 32 for all")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    known = {
        (workload, metric): values
        for workload in WORKLOADS
        for metric, values in series(chosen.traces / f"{workload}-1s-train.csv.gz", workload).items()
    }
    begun = time.perf_counter()
    own = Own(known, chosen.own_rounds, chosen.inputs)
    own_s = time.perf_counter() - begun
    print(f"own: {own_s:.0f} s", flush=True)
    begun = time.perf_counter()
    one = One(list(known.values()), chosen.one_rounds, chosen.inputs)
    one_s = time.perf_counter() - begun
    print(f"one: {one_s:.0f} s", flush=True)
    rows = []
    for part, folder in (("test", chosen.traces), ("holdout", chosen.holdout or chosen.traces)):
        for workload in WORKLOADS:
            path = folder / f"{workload}-1s-{part}.csv.gz"
            if not path.exists():
                continue
            for metric, values in series(path, workload).items():
                windows, truths = windows_of(values)
                rows.append({
                    "trace": f"{workload}-1s-{part}",
                    "metric": metric,
                    "persistence": figures(windows[:, -1], truths),
                    "own": figures(own.say((workload, metric), values), truths),
                    "one": figures(one.say(values), truths),
                })
    report = {
        "command": f"scripts/lstm.py --traces crates/lab/traces --inputs {chosen.inputs} --own-rounds {chosen.own_rounds}"
        f" --one-rounds {chosen.one_rounds} --out crates/lab/data/lstm.json",
        "framework": f"jax {jax.__version__}, {platform.python_implementation()} {platform.python_version()}, CPU",
        "parameters": count(one.parameters),
        "inputs": chosen.inputs,
        "window": WINDOW,
        "batch": BATCH,
        "own": {"rounds": chosen.own_rounds, "train_s": round(own_s), "networks": len(known)},
        "one": {"rounds": chosen.one_rounds, "train_s": round(one_s), "windows": one.windows},
        "inference_us": round(inference_us(one.parameters), 1),
        "series": rows,
    }
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
