"""DESIGN.md §5 written down once more, for all ranks at once, on dense NumPy arrays: slow, short, and independent.

It shares no code with the package. Messages are dense arrays with a mask of what was selected.
"""

import numpy as np


def largest(values, k):
    """Mask of the k largest magnitudes; ties to the lower index, zeros never."""
    mask = np.zeros(len(values), bool)
    mask[np.lexsort((np.arange(len(values)), -np.abs(values)))[:k]] = True
    return mask & (values != 0)


class Reference:
    def __init__(self, ranks, teams, n, k, dtype, sag="auto", residual="global"):
        self.P, self.d, self.p, self.n, self.k = ranks, teams, ranks // teams, n, k
        self.sag = sag if sag != "auto" else "r" if teams & (teams - 1) == 0 else "b"
        self.policy = residual
        p = self.p
        self.block = [slice(j * n // p, (j + 1) * n // p) for j in range(p)]
        self.kj = [(j + 1) * k // p - j * k // p for j in range(p)]
        self.residual = [np.zeros(n, dtype) for _ in range(ranks)]
        step = max(1, round(0.01 * k * (teams - 1) / ranks))
        self.width = [{"h": -(-kw // teams), "step": step, "flag": False, "seen": None} for kw in self.kj]

    def reduce(self, grads):
        """The dense result; residuals are updated."""
        acc = [g + r for g, r in zip(grads, self.residual, strict=True)]
        self.sums = [a.copy() for a in acc]  # acc and what was received, until the block is sent
        self.drop = [np.zeros_like(a) for a in acc]
        self.sent = [np.zeros(self.n, bool) for _ in acc]
        self.reduce_scatter()
        held = [self.sparsify(r, r % self.p) for r in range(self.P)]
        if self.d > 1:
            for w in range(self.p):
                peers = [t * self.p + w for t in range(self.d)]
                new = (self.r_sag if self.sag == "r" else self.b_sag)(w, peers, [held[r] for r in peers])
                for r in peers:
                    held[r] = new
        result = np.concatenate([held[w] for w in range(self.p)])
        final = result != 0
        for r in range(self.P):
            if self.policy == "global":
                self.residual[r] = np.where(final, self.drop[r], acc[r])
            else:
                lost = self.sent[r] & final if self.policy == "partial" else self.sent[r]
                self.residual[r] = np.where(lost, 0, acc[r])
        return result

    def sparsify(self, r, j):
        b = self.block[j]
        mask = largest(self.sums[r][b], self.kj[j])
        self.drop[r][b] = np.where(mask, 0, self.sums[r][b])
        self.sent[r][b] = mask
        return np.where(mask, self.sums[r][b], 0)

    def reduce_scatter(self):
        p, rounds = self.p, (self.p - 1).bit_length()
        for i in range(1, rounds + 1):
            s = 2 ** (rounds - i)
            messages = []
            for r in range(self.P):
                w, first = r % p, r - r % p
                for j in range(w + s, min(w + 2 * s, w + p)):
                    messages.append((first + (w + s) % p, j % p, self.sparsify(r, j % p)))
            for to, j, message in messages:
                self.sums[to][self.block[j]] += message

    def r_sag(self, w, peers, held):
        for t in range(self.d.bit_length() - 1):
            summed = [held[a] + held[a ^ 2**t] for a in range(self.d)]
            for a, r in enumerate(peers):
                mask = largest(summed[a], self.kj[w])
                self.drop[r][self.block[w]] += np.where(mask, 0, summed[a]) / 2 ** (t + 1)
                held[a] = np.where(mask, summed[a], 0)
        return held[0]

    def b_sag(self, w, peers, held):
        width, kw = self.width[w], self.kj[w]
        if width["seen"] is not None:
            if (width["seen"] > kw) ^ (width["step"] > 0):
                if width["flag"]:
                    width["step"] *= 2
                width["flag"] = not width["flag"]
            else:
                half = abs(width["step"]) // 2 or 1
                width["step"] = -half if width["step"] > 0 else half
                width["flag"] = False
            least = -(-kw // self.d)
            most = max(1, kw - least)
            width["step"] = min(max(width["step"], -most), most)
            width["h"] = min(max(width["h"] + width["step"], least), kw)
        total = np.zeros_like(held[0])
        for r, mine in zip(peers, held, strict=True):
            mask = largest(mine, width["h"])
            self.drop[r][self.block[w]] += np.where(mask, 0, mine)
            self.sent[r][self.block[w]] &= mask
            total = total + np.where(mask, mine, 0)
        width["seen"] = np.count_nonzero(total)
        mask = largest(total, kw)
        for r in peers:
            self.drop[r][self.block[w]] += np.where(mask, 0, total) / np.asarray(self.d, total.dtype)
        return np.where(mask, total, 0)
