# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The examples of perf/examples in float64, without the library: what their runs should print.

Written from the listings of the papers that the examples name, and from FORMAT.md for the elements that
Rand-k draws. `python3 example_oracles.py` prints the numbers.
"""

CLIENTS, SIZE, ROUNDS, LOCAL_STEPS = 4, 16, 60, 3
LOCAL_RATE, SCALING, MOMENTUM = 0.05, 0.3, 0.5


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011)."""
    low, mask = list(counter), 0xFFFFFFFF
    first, second = key
    for _ in range(10):
        p, q = 0xD2511F53 * low[0], 0xCD9E8D57 * low[2]
        low = [(q >> 32) ^ low[1] ^ first, q & mask, (p >> 32) ^ low[3] ^ second, p & mask]
        first, second = (first + 0x9E3779B9) & mask, (second + 0xBB67AE85) & mask
    return low


def drawn(size, kept, tensor, epoch, key=(5, 0)):
    """The elements with the smallest draws."""
    draws = [philox((i >> 2, 0, epoch, tensor), key)[i % 4] for i in range(size)]
    return sorted(range(size), key=lambda i: (draws[i], i))[:kept]


def rand_k(z, kept, tensor, epoch):
    chosen = drawn(len(z), kept, tensor, epoch)
    return [z[i] * len(z) / kept if i in chosen else 0.0 for i in range(len(z))]


def top_k(z, kept):
    chosen = sorted(range(len(z)), key=lambda i: (-abs(z[i]), i))[:kept]
    return [z[i] if i in chosen else 0.0 for i in range(len(z))]


def federated(method):
    """The excess loss after every round."""
    curvature = [0.5 + 0.25 * (k % 5) for k in range(SIZE)]
    target = [[((7 * k + 11 * i + 3) % 13 - 6) / 4 for k in range(SIZE)] for i in range(CLIENTS)]
    best = [sum(t[k] for t in target) / CLIENTS for k in range(SIZE)]

    def loss(x):
        return sum(curvature[k] * (x[k] - t[k]) ** 2 / 2 for t in target for k in range(SIZE)) / CLIENTS

    x = [((5 * k + 1) % 11 - 5) / 2 for k in range(SIZE)]
    mean_control = [0.0] * SIZE
    control = [[0.0] * SIZE for _ in range(CLIENTS)]
    momentum = [[0.0] * SIZE for _ in range(CLIENTS)]
    excess = []
    for t in range(ROUNDS):
        sent = {}
        for i in sorted({t % CLIENTS, (t + 1 + t // CLIENTS) % CLIENTS}):
            y, gradients = list(x), [0.0] * SIZE
            for _ in range(LOCAL_STEPS):
                for k in range(SIZE):
                    gradient = curvature[k] * (y[k] - target[i][k])
                    gradients[k] += gradient / LOCAL_STEPS
                    direction = gradient
                    if method == "scafcom":
                        direction = (1 - MOMENTUM) * momentum[i][k] + MOMENTUM * gradient
                    y[k] -= LOCAL_RATE * (direction - control[i][k] + mean_control[k])
            if method == "scafcom":
                momentum[i] = [(1 - MOMENTUM) * m + MOMENTUM * g for m, g in zip(momentum[i], gradients)]
                sent[i] = top_k([m - c for m, c in zip(momentum[i], control[i])], SIZE // 4)
            else:
                z = [SCALING * ((x[k] - y[k]) / (LOCAL_RATE * LOCAL_STEPS) - mean_control[k])
                     for k in range(SIZE)]
                sent[i] = rand_k(z, SIZE // 2, 30 + i, t)
        total = [sum(d[k] for d in sent.values()) for k in range(SIZE)]
        for k in range(SIZE):
            x[k] -= LOCAL_RATE * LOCAL_STEPS * (mean_control[k] + total[k] / len(sent))
            mean_control[k] += total[k] / CLIENTS
            for i, d in sent.items():
                control[i][k] += d[k]
        excess.append(loss(x) - loss(best))
    return excess


RANKS, VI_SIZE, KEPT, ITERATIONS, ANCHORING = 4, 12, 4, 300, 0.75


def is_heads(iteration):
    mask = (1 << 64) - 1
    x = (iteration + 1) * 0x9E3779B97F4A7C15 & mask
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
    return x ^ x >> 31 < 1 << 62


def variational(method):
    """The distance to the solution after every iteration."""
    n = VI_SIZE

    def coupling(m, k, l):
        return ((3 * k + 5 * l + 7 * m) % 9 - 4) / 32

    matrix = [[[(0.5 + 0.125 * ((k + m) % 4) if k == l else 0) + coupling(m, k, l) - coupling(m, l, k)
                for l in range(n)] for k in range(n)] for m in range(RANKS)]
    offset = [[((7 * k + 11 * m + 3) % 13 - 6) / 4 for k in range(n)] for m in range(RANKS)]

    def operator(m, z):
        return [sum(a * b for a, b in zip(matrix[m][k], z)) + offset[m][k] for k in range(n)]

    def mean(vectors):
        return [sum(v[k] for v in vectors) / RANKS for k in range(n)]

    solution = [0.0] * n
    for _ in range(4000):  # a plain iteration, which this operator allows
        solution = [z - 0.3 * f for z, f in zip(solution, mean([operator(m, solution) for m in range(RANKS)]))]

    rate = 0.08 if method == "masha1" else 0.2
    z, anchor = [0.0] * n, [0.0] * n
    owed, owed_by_server = [[0.0] * n for _ in range(RANKS)], [0.0] * n
    distances = []
    for t in range(ITERATIONS):
        at_anchor = [operator(m, anchor) for m in range(RANKS)]
        half = [ANCHORING * a + (1 - ANCHORING) * b - rate * f for a, b, f in zip(z, anchor, mean(at_anchor))]
        difference = [[rate * (f - g) for f, g in zip(operator(m, half), at_anchor[m])] for m in range(RANKS)]
        if method == "masha1":
            correction = rand_k(mean([rand_k(d, KEPT, 40, t) for d in difference]), KEPT, 41, t)
        else:
            sent = []
            for m in range(RANKS):
                full = [d + e for d, e in zip(difference[m], owed[m])]
                sent.append(top_k(full, KEPT))
                owed[m] = [a - b for a, b in zip(full, sent[m])]
            full = [a + b for a, b in zip(mean(sent), owed_by_server)]
            correction = top_k(full, KEPT)
            owed_by_server = [a - b for a, b in zip(full, correction)]
        z = [a - b for a, b in zip(half, correction)]
        distances.append(sum((a - b) ** 2 for a, b in zip(z, solution)) ** 0.5)
        if is_heads(t):
            anchor = list(z)
    return distances


if __name__ == "__main__":
    for name in ("scallion", "scafcom"):
        values = federated(name)
        print(name, *(f"{values[t - 1]:.10g}" for t in (1, 2, 5, 10, 20, 40, 60)))
    for name in ("masha1", "masha2"):
        values = variational(name)
        print(name, *(f"{values[t - 1]:.10g}" for t in (1, 10, 50, 100, 300)))
