"""Mutants that compute the same, or what nothing may depend on, each with the reason. They are run like all others."""

import re

_SHAPED = "numpy takes every negative length for the one that is left over"
_READ = "how many texts are read at a time: each is read by itself"
_FIRST = "the first client's score exceeds minus infinity, and what was there before is multiplied by exp(-inf) = 0"
_LEAST = "1/2 - (1 - 2 flip) / 2 is the least chance already, and stays it beyond"
_WIDER = "more numbers of true ones are looked at: beyond 12 deviations they have no chance in double precision"
_DRAW = "a draw of 53 bits equals the chance once in 2^53 times"
_PIECES = "how many numbers are treated at a time: each is treated once anyhow, so that speed alone changes"
_PIECES_DRAWN = "how many bits are drawn at a time: which random word a bit takes changes, its probability does not"
_PIECES_SUMMED = "how many rows are summed at a time: speed, and the last bits of a norm in double precision"

_ORDERS = "[2, 2.25, 2.5, 2.75, 3, 3.5, *range(4, 17), 20, 24, 32, 48, 64, 128, 256]"

_RANGES = ((4, 17, 5, 17), (4, 17, 3, 17), (4, 17, 4, 18), (4, 17, 4, 16))

# (module, the line as it is, the line as it was changed to, why no test can or should fail)
EQUIVALENTS: tuple[tuple[str, str, str, str], ...] = (
    *(
        ("server/aggregation", f"_CHUNK = 1 << 15{comment}", f"_CHUNK = {size}{comment}", _PIECES)
        for comment in ("  # numbers at a time, so that intermediate results stay in the cache",)
        for size in ("2 << 15", "1 << 16", "1 << 14")
    ),
    *(
        ("server/aggregation", "step = max(1, _CHUNK // delta_RD.shape[1])", changed, _PIECES)
        for changed in (
            "step = max(2, _CHUNK // delta_RD.shape[1])",
            "step = max(1, (_CHUNK * delta_RD.shape[1]))",
        )
    ),
    (
        "server/sampling",
        "ids = [i for i, chance in zip(ids, chances, strict=True) if chance < config.fraction]",
        "ids = [i for i, chance in zip(ids, chances, strict=True) if (chance <= config.fraction)]",
        _DRAW,
    ),
    (
        "server/sampling",
        'ids = [i for i in ids if generator(seed, "dropout", round_, i).random() >= config.dropout]',
        "ids = [i for i in ids if (generator(seed, 'dropout', round_, i).random() > config.dropout)]",
        _DRAW,
    ),
    (
        "methods/state",
        "sums = {name: self.lr_sums[name] or 1.0 for name in self.received}",
        "sums = {name: self.lr_sums[name] or 2.0 for name in self.received}",
        "any number by which the zeros of a parameter that does not move are divided gives zeros",
    ),
    (
        "methods/copies",
        "whole = isinstance(share, float) and share == 1",
        "whole = isinstance(share, float) and share == 2",
        "1 * private + 0 * shared is the private parameter: only time is saved",
    ),
    (
        "server/sampling",
        "elif size < len(ids):",
        "elif (size <= len(ids)):",
        "as many distinct clients as there are, sorted, are all of them",
    ),
    *(
        (
            "accounting/composition",
            f"_ORDERS = {_ORDERS}  # of Renyi divergence",
            f"_ORDERS = {re.sub(rf', {re.escape(str(order))}(?=[],])', f', {other}', _ORDERS)}  # of Renyi divergence",
            "above epsilon = 100, where this bound counts alone, its order is 2; below, another bound is smaller",
        )
        for order, other in (
            *((order, order + change) for order in (3, 20, 24, 32, 48, 64, 128, 256) for change in (1, -1)),
            *((2.25, 4.5), (2.5, 5.0), (2.75, 5.5), (3.5, 7.0)),
            *((f"*range({a}, {b})", f"*range({c}, {d})") for a, b, c, d in _RANGES),
        )
    ),
    *(
        (module, before, before.replace(f"{what}reshape({leading}-1)", f"{what}reshape({leading}-2)"), _SHAPED)
        for module, before, what, leading in (
            ("server/aggregation", "flat = delta.reshape(-1)", "delta.", ""),
            ("mechanisms/draws", "flat_N, bits_N = np.ravel(numbers), bits.reshape(-1)", "bits.", ""),
            (
                "aggregations/norms",
                "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else "
                "tensor.reshape(1, -1)",
                "tensor.",
                "1, ",
            ),
        )
    ),
    *(("evaluation/classes", "BATCH = 256", f"BATCH = {size}", _READ) for size in (255, 257)),
    *(("evaluation/words", "BATCH = 64", f"BATCH = {size}", _READ) for size in (63, 65)),
    (
        "server/aggregation",
        "if self.holders_V is not None and other.holders_V is not None:",
        "if (self.holders_V is not None or other.holders_V is not None):",
        "the parts of one sum all count holders, or none does",
    ),
    (
        "server/aggregation",
        "largest = float(max(tensor.max(), -tensor.min())) if tensor.size else 0.0",
        "largest = float(max(tensor.max(), -tensor.min())) if tensor.size else 1.0",
        "1, times a share that is at most 1, is far below the limit too",
    ),
    (
        "mechanisms/randomized_response",
        "each, run = composition.basic(epsilon, count), composition.basic(epsilon, every)",
        "each, run = composition.basic(epsilon, count), composition.basic(every, epsilon)",
        "a b = b a",
    ),
    (
        "mechanisms/randomized_response",
        "each, run = composition.basic(epsilon, count), composition.basic(epsilon, every)",
        "each, run = composition.basic(count, epsilon), composition.basic(epsilon, every)",
        "a b = b a",
    ),
    *(
        (
            "accounting/composition",
            "first, last = max(0, math.floor(mode - reach)), min(count, math.ceil(mode + reach))",
            f"first, last = max(0, math.{low}(mode - reach)), min(count, math.{high}(mode + reach))",
            "one number more or less at 12 deviations and 100 more, where it has no chance in double precision",
        )
        for low, high in (("ceil", "ceil"), ("floor", "floor"))
    ),
    (
        "ledger/__init__",
        "if not any(entry.holds for entry in known) or (holds and _run(stated) <= _run(known)):",
        "if not any(entry.holds for entry in known) or (holds and (_run(stated) < _run(known))):",
        "of two statements that are as strong either may count",
    ),
    (
        "accounting/composition",
        "budget = delta - _TAIL",
        "budget = (delta + _TAIL)",
        "1e-30 more or less of a delta shows in no figure",
    ),
    (
        "accounting/composition",
        "if best > _LARGE:",
        "if (best >= _LARGE):",
        "a bound equals 100 to the last bit by chance alone",
    ),
    (
        "client/host",
        "self.sent = None  # its memory is needed",
        "pass  # its memory is needed",
        "it is replaced in the next line: the memory of both is taken for a moment",
    ),
    (
        "client/worker",
        "members = sorted(members, key=lambda client: (-len(self.clients[client].train), client))  # see Stack",
        "members = sorted(members, key=lambda client: ((len(self.clients[client].train)), client))  # see Stack",
        "in which order clients sit decides which of them step side by side: speed, and the last bits",
    ),
    (
        "evaluation/classes",
        "scores_N = np.zeros(len(texts), np.float32)",
        "scores_N = np.ones(len(texts), np.float32)",
        "every text is in one batch, and its score is written over what was there",
    ),
    *(
        ("evaluation/unigram", before, after, "counts + alpha = alpha + counts")
        for before, after in (
            ("nats_V = _nats(counts_V, alpha)", "nats_V = _nats(alpha, counts_V)"),
            ("found = _evaluate(counts_V, alpha, splits)", "found = _evaluate(alpha, counts_V, splits)"),
            (
                'return _evaluate(counts_V, alpha, splits)["perplexity"]',
                'return _evaluate(alpha, counts_V, splits)["perplexity"]',
            ),
        )
    ),
    (
        "layout",
        "return bool(np.isfinite(tensor.sum()) or np.isfinite(tensor).all())",
        "return np.isfinite(tensor.sum()) or np.isfinite(tensor).all()",
        "it is a truth value already",
    ),
    (
        "client/evaluate",
        "evaluations.append(_evaluate_splits(host, client, stack, config.inference, name, splits, scored=False))",
        "evaluations.append(_evaluate_splits(host, client, stack, config.inference, name, splits, scored=True))",
        "scores that are taken for nothing: ``averaged`` has none",
    ),
    (
        "client/worker",
        "wrong = outcome.problem(stack.flat_CP[place], stack.tables(stack.table_ND)[place])",
        "wrong = outcome.problem(stack.tables(stack.table_ND)[place], stack.flat_CP[place])",
        "each is asked whether it is finite",
    ),
    (
        "wire/uplink",
        "return np.zeros(0, np.uint8), {}",
        "return np.ones(0, np.uint8), {}",
        "an array without elements",
    ),
    (
        "training/optimizer",
        "fused=True,",
        "fused=False,",
        "the same arithmetic in several calls: only time is lost",
    ),
    *(
        ("training/optimizer", before, before.replace("zeros", "ones"), "``reset``, which follows, sets them to zero")
        for before in (
            "self.steps = [torch.zeros((), device=stack.workspace.device) for _ in range(stack.clients)]",
            "self._steps = [{name: torch.zeros_like(step) for name in self.tasks} for step in self.steps]",
        )
    ),
    (
        "training/optimizer",
        "tables = None if table_grad is None else torch.cat([changed[name] for name in self.stack.widths], -1)",
        "tables = None if table_grad is None else torch.cat([changed[name] for name in self.stack.widths], (1))",
        "the last axis of a table is its second: clients whose gradients are changed are trained one by one",
    ),
    (
        "server/optimizers",
        "if optimizer.lr != 1:",
        "if optimizer.lr != 0:",
        "a rate of 0 is refused, and 1 times a number is that number: only time is saved",
    ),
    (
        "server/downlink",
        "name for name, changed in earlier.items() if not changed or self.took_part.get(client.id, 0) > changed",
        "name for name, changed in earlier.items() if not changed or self.took_part.get(client.id, 1) > changed",
        "a round that is compared with is 1 at least, and 1 > 1 is as false as 0 > 1",
    ),
    (
        "server/downlink",
        "self.drawn = one",
        "pass",
        "cohorts of all earlier rounds are drawn once more, to the same",
    ),
    (
        "server/downlink",
        "before = range(round_ - 1, 0, -1)",
        "before = range(round_ - 0, 0, -1)",
        "it is asked of tensors that are not shared in this round",
    ),
    (
        "server/downlink",
        "return self.received.shapes.get(TABLE, (0,))[0]",
        "return self.received.shapes.get(TABLE, (1,))[0]",
        "how many rows a table has that is not shared is never asked",
    ),
    (
        "server/downlink",
        "self.drawn = 0",
        "self.drawn = 1",
        "what a client that took part in the first round alone lacks is what one lacks that never took part",
    ),
    (
        "client/texts",
        'if asked.texts != "all" and asked.texts < len(data.test):',
        'if asked.texts != "all" and (asked.texts <= len(data.test)):',
        "as many texts as there are, in their order, are all of them",
    ),
    *(
        (
            "ledger/__init__",
            "front = _chain(experiment.uplink[:place], Sent(1, 1, DELTA))",
            f"front = _chain(experiment.uplink[:place], Sent({count}, {rounds}, DELTA))",
            "whether something is guaranteed does not depend on the number of coordinates or rounds",
        )
        for count, rounds in ((0, 1), (2, 1), (1, 2))
    ),
    (
        "accounting/composition",
        "mode, deviation = count * truth, math.sqrt(count * truth * (1 - truth))",
        "mode, deviation = count * truth, math.sqrt((count / truth) * (1 - truth))",
        _WIDER,
    ),
    (
        "accounting/composition",
        "mode, deviation = count * truth, math.sqrt(count * truth * (1 - truth))",
        "mode, deviation = count * truth, math.sqrt(count * truth * (2 - truth))",
        _WIDER,
    ),
    (
        "accounting/composition",
        "low, high = (low, middle) if mass - other <= budget else (middle + 1, high)",
        "low, high = (low, middle) if (mass - other < budget) else (middle + 1, high)",
        "where delta is the budget to the last bit, the pieces on both sides give the same epsilon",
    ),
    (
        "accounting/composition",
        "low, high = (low, middle) if spends(middle) <= epsilon else (middle, high)",
        "low, high = (low, middle) if (spends(middle) < epsilon) else (middle, high)",
        "the multiplier that spends epsilon to the last bit is found from the other side",
    ),
    (
        "accounting/composition",
        "if high > 1e6:",
        "if high > 2000000.0:",
        "it takes powers of ten alone, of which none lies between",
    ),
    (
        "accounting/composition",
        "while high / low > 1 + 10.0**-_DIGITS / 4:",
        "while (high / low >= 1 + 10.0 ** (-_DIGITS) / 4):",
        "a ratio equal to the bound to the last bit is halved once more, and then rounded up to four digits",
    ),
    (
        "accounting/composition",
        "while high / low > 1 + 10.0**-_DIGITS / 4:",
        "while high / low > 1 + 10.0**-_DIGITS / 5:",
        "a finer search; what it finds is rounded up to four digits either way",
    ),
    *(
        ("mechanisms/draws", f"_CHUNK = 1 << 16{comment}", f"_CHUNK = {size}{comment}", _PIECES_DRAWN)
        for comment in ("  # coordinates at a time, so that intermediate results stay in the cache",)
        for size in ("2 << 16", "1 << 17", "1 << 15")
    ),
    (
        "mechanisms/draws",
        "np.greater(part, 0, out=side) if slope > 0 else np.less(part, 0, out=side)",
        "np.greater(part, 0, out=side) if (slope >= 0) else np.less(part, 0, out=side)",
        "at a slope of 0 both values are as likely, whatever the sign",
    ),
    (
        "mechanisms/draws",
        "rest = np.clip((_LEVELS * chance - levels) * _REST, 0, np.nextafter(_REST, 0))",
        "rest = np.clip(0, (_LEVELS * chance - levels) * _REST, np.nextafter(_REST, 0))",
        "max(a, 0) = max(0, a)",
    ),
    (
        "mechanisms/draws",
        "size = min(_CHUNK, len(flat_N))",
        "size = max(_CHUNK, len(flat_N))",
        "the length of buffers of which each piece takes as much as it needs: only memory changes",
    ),
    *(
        ("aggregations/norms", f"_CHUNK = 1 << 15{comment}", f"_CHUNK = {size}{comment}", _PIECES_SUMMED)
        for comment in ("  # numbers at a time, so that intermediate results stay in the cache",)
        for size in ("2 << 15", "1 << 16", "1 << 14")
    ),
    *(
        ("aggregations/norms", "step = max(at_least, _CHUNK // max(1, matrix_RN.shape[1]))", changed, _PIECES_SUMMED)
        for changed in (
            "step = max(at_least, (_CHUNK * max(1, matrix_RN.shape[1])))",
            "step = max(at_least, _CHUNK // max(2, matrix_RN.shape[1]))",
            "step = max(at_least, _CHUNK // max(1, matrix_RN.shape[0]))",
        )
    ),
    *(
        ("aggregations/update_set", f"_PIECE = 1 << 18{comment}", f"_PIECE = {size}{comment}", _PIECES)
        for comment in ("  # numbers of a piece, in float64: 2 MB, about a core's cache",)
        for size in ("2 << 18", "1 << 19", "1 << 17")
    ),
    *(
        ("aggregations/update_set", "step = max(1, _PIECE // max(1, len(self) * numbers))", changed, _PIECES)
        for changed in (
            "step = max(2, _PIECE // max(1, len(self) * numbers))",
            "step = max(1, _PIECE // max(2, len(self) * numbers))",
        )
    ),
    *(
        (
            "aggregations/trimmed_mean",
            f"return math.floor(self.share * updates + 1e-9){comment}",
            f"return math.floor(self.share * updates + 2e-09){comment}",
            "more than a product of such numbers is rounded by, and far less than a share has decimals",
        )
        for comment in ("  # 0.29 * 100 is just below 29",)
    ),
    (
        "aggregations/norm_bounded",
        "return self.norm / found if found > self.norm else 1.0",
        "return self.norm / found if (found >= self.norm) else 1.0",
        "of two equal numbers the quotient is 1",
    ),
    (
        "aggregations/attention",
        "self.sum_RN = np.zeros(as_matrix(tensor).shape)",
        "self.sum_RN = np.ones(as_matrix(tensor).shape)",
        _FIRST,
    ),
    *(
        (
            "aggregations/attention",
            f"self.largest, self.weight, self.squares = -math.inf, 0.0, 0.0{comment}",
            f"self.largest, self.weight, self.squares = -math.inf, {weight}, {squares}{comment}",
            _FIRST,
        )
        for comment in ("  # of exp(s_k - largest): the sum, and of squares",)
        for weight, squares in ((1.0, 0.0), (0.0, 1.0))
    ),
    (
        "aggregations/attention",
        'return spectral(delta_RN) if self.norm == "spectral" and len(delta_RN) > 1 else frobenius(delta_RN)',
        'return spectral(delta_RN) if self.norm == "spectral" and (len(delta_RN) >= 1) else frobenius(delta_RN)',
        "a matrix of one row has one singular value, its Frobenius norm",
    ),
    (
        "aggregations/attention",
        'score = self._distance(delta_RN) if self.attention == "softmax" else 0.0',
        'score = self._distance(delta_RN) if self.attention == "softmax" else 1.0',
        "exp(s - s) = 1, whatever score all clients have",
    ),
    (
        "aggregations/norms",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(1, -1)",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if (tensor.ndim >= 1) else "
        "tensor.reshape(1, -1)",
        "a vector as one column has the norms that it has as one row, to the last bits",
    ),
    *(
        (
            "aggregations/norms",
            "tall_RN = delta_RN.T if len(delta_RN) < delta_RN.shape[1] else delta_RN",
            changed,
            "both Gram matrices have the same largest eigenvalue: the larger one costs more time",
        )
        for changed in (
            "tall_RN = delta_RN.T if (len(delta_RN) <= delta_RN.shape[1]) else delta_RN",
            "tall_RN = delta_RN.T if len(delta_RN) < delta_RN.shape[0] else delta_RN",
        )
    ),
    (
        "mechanisms/project",
        "return vectors_DD * np.sign(vectors_DD[largest_D, np.arange(len(largest_D))])",
        "return (vectors_DD / np.sign(vectors_DD[largest_D, np.arange(len(largest_D))]))",
        "the largest entry of a vector of length one is not 0, and its sign is 1 or -1",
    ),
    *(
        (
            "mechanisms/randomized_response",
            "return {name: bernoulli(sign, 1 - 2 * flip, flip, rng) for name, sign in signs.items()}",
            f"return {{name: bernoulli(sign, {slope}, flip, rng) for name, sign in signs.items()}}",
            _LEAST,
        )
        for slope in ("(1 + 2 * flip)", "2 - 2 * flip", "1 - 1 * flip")
    ),
    *(
        (
            "mechanisms/randomized_response",
            "signs = {name: np.where(bits, np.float32(0.5), np.float32(-0.5)) for name, bits in delta.items()}",
            f"signs = {{name: np.where(bits, np.float32({one}), np.float32({other})) for name, bits in delta.items()}}",
            _LEAST,
        )
        for one, other in ((0.5, -1.0), (1.0, -0.5))
    ),
    (
        "methods/kteps",
        'terms["diversity"] = hsic(o_s_BF, o_p_BF, self.bandwidth)',
        'terms["diversity"] = hsic(o_p_BF, o_s_BF, self.bandwidth)',
        "HSIC is symmetric",
    ),
    (
        "methods/kteps",
        "b = distances_BB.detach()[upper[0], upper[1]].median().clamp_min(1e-12)",
        "b = distances_BB.detach()[upper[0], upper[1]].median().clamp_min(2e-12)",
        "some positive number, lest 0 / 0 is computed where features coincide: any gives a kernel of exp(0) = 1",
    ),
    (
        "client/evaluate",
        "epochs = -(-config.steps * training.batch(len(texts)) // len(texts))  # as many batches as there are steps",
        "epochs = -((-config.steps * training.batch(len(texts)) * len(texts)))  # as many batches as there are steps",
        "more epochs than are drawn: as many batches as there are steps are taken of them",
    ),
    (
        "state/noise_key",
        "def generator(self, purpose: str, round_: int = 0, client: int = SERVER) -> np.random.Generator:",
        "def generator(self, purpose: str, round_: int = 1, client: int = SERVER) -> np.random.Generator:",
        "the round is left out where it is asked whether the library is installed, and nothing is drawn",
    ),
    (
        "training/optimizer",
        "if self.apart and self.config.clip_norm is not None:  # the norm is that of the batch's own gradient",
        "if (self.apart or self.config.clip_norm is not None):  # the norm is that of the batch's own gradient",
        "in all other cases the next step writes every gradient that it reads",
    ),
    (
        "aggregations/attention",
        'return spectral(delta_RN) if self.norm == "spectral" and len(delta_RN) > 1 else frobenius(delta_RN)',
        'return spectral(delta_RN) if self.norm == "spectral" and len(delta_RN) > 0 else frobenius(delta_RN)',
        "both norms of a single row are its length",
    ),
    (
        "aggregations/attention",
        "if score > self.largest:",
        "if (score >= self.largest):",
        "what was there before is multiplied by exp(0) = 1",
    ),
    (
        "aggregations/norms",
        "tall_RN = delta_RN.T if len(delta_RN) < delta_RN.shape[1] else delta_RN",
        "tall_RN = (delta_RN if len(delta_RN) < delta_RN.shape[1] else delta_RN.T)",
        "both Gram matrices have the same largest eigenvalue: the larger one costs more time",
    ),
    (
        "aggregations/norms",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(1, -1)",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 0 else tensor.reshape(1, -1)",
        "a vector as one column has the norms that it has as one row, to the last bits",
    ),
    (
        "aggregations/norms",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(1, -1)",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(-1, 1)",
        "a vector as one column has the norms that it has as one row, to the last bits",
    ),
    (
        "aggregations/norms",
        "def parts(matrix_RN: NDArray[np.float32], at_least: int = 1) -> Iterator[slice]:",
        "def parts(matrix_RN: NDArray[np.float32], at_least: int = 2) -> Iterator[slice]:",
        _PIECES_SUMMED,
    ),
    (
        "methods/asp_mtl",
        'terms["orthogonality"] = orthogonality(made.shared_BF, made.private_BF, self.penalty)',
        'terms["orthogonality"] = orthogonality(made.private_BF, made.shared_BF, self.penalty)',
        "S^T P and P^T S have the same entries",
    ),
    (
        "methods/base",
        "return weighted[0] if len(weighted) == 1 and not weighted[0].dim() else torch.stack(weighted).sum()",
        "return weighted[0] if len(weighted) == 0 and not weighted[0].dim() else torch.stack(weighted).sum()",
        "the sum of a single number is that number",
    ),
    (
        "methods/fedmmd",
        "mean = (distances_NN.detach().sum() / (2 * size * (2 * size - 1))).clamp_min(1e-12)",
        "mean = (distances_NN.detach().sum() / (2 * size * (2 * size - 1))).clamp_min(2e-12)",
        "some positive number, lest 0 / 0 is computed where features coincide",
    ),
    (
        "methods/fedmmd",
        "kernel_NN = torch.stack([torch.exp(-distances_NN / (mean * width)) for width in WIDTHS]).sum(0)",
        "kernel_NN = torch.stack([torch.exp(-distances_NN / ((mean / width))) for width in WIDTHS]).sum(0)",
        "with each width its reciprocal is among them",
    ),
    (
        "methods/kteps",
        "return gram_BB - gram_BB.mean(0, keepdim=True) - gram_BB.mean(1, keepdim=True) + gram_BB.mean()",
        "return gram_BB - gram_BB.mean(1, keepdim=True) - gram_BB.mean(1, keepdim=True) + gram_BB.mean()",
        "Gram matrices are symmetric, and Tr(H L H K) takes row means for column means",
    ),
    (
        "methods/kteps",
        "return gram_BB - gram_BB.mean(0, keepdim=True) - gram_BB.mean(1, keepdim=True) + gram_BB.mean()",
        "return gram_BB - gram_BB.mean(0, keepdim=False) - gram_BB.mean(1, keepdim=True) + gram_BB.mean()",
        "Gram matrices are symmetric, and Tr(H L H K) takes row means for column means",
    ),
    (
        "methods/kteps",
        "return gram_BB - gram_BB.mean(0, keepdim=True) - gram_BB.mean(1, keepdim=True) + gram_BB.mean()",
        "return gram_BB - gram_BB.mean(0, keepdim=True) - gram_BB.mean(0, keepdim=True) + gram_BB.mean()",
        "Gram matrices are symmetric, and Tr(H L H K) takes row means for column means",
    ),
    (
        "methods/kteps",
        "return gram_BB - gram_BB.mean(0, keepdim=True) - gram_BB.mean(1, keepdim=True) + gram_BB.mean()",
        "return gram_BB - gram_BB.mean(0, keepdim=True) - gram_BB.mean(1, keepdim=False) + gram_BB.mean()",
        "Gram matrices are symmetric, and Tr(H L H K) takes row means for column means",
    ),
    (
        "mechanisms/clip",
        "scale = np.float32(min(1.0, self.norm / length)) if length else np.float32(1)",
        "scale = np.float32(min(1.0, self.norm / length)) if length else np.float32(0)",
        "of an update of zeros any multiple is zeros",
    ),
    (
        "mechanisms/clip",
        "scale = np.float32(min(1.0, self.norm / length)) if length else np.float32(1)",
        "scale = np.float32(min(1.0, self.norm / length)) if length else np.float32(2)",
        "of an update of zeros any multiple is zeros",
    ),
    (
        "mechanisms/clip",
        "return delta if scale == 1 else {name: tensor * scale for name, tensor in delta.items()}",
        "return delta if scale == 0 else {name: tensor * scale for name, tensor in delta.items()}",
        "once each number, to the last bit",
    ),
    (
        "mechanisms/clip",
        "return delta if scale == 1 else {name: tensor * scale for name, tensor in delta.items()}",
        "return delta if scale == 2 else {name: tensor * scale for name, tensor in delta.items()}",
        "once each number, to the last bit",
    ),
    (
        "mechanisms/clip",
        "return left is None or _length(left) >= self.norm * (1 - _ROUNDED)",
        "return left is None or (_length(left) > self.norm * (1 - _ROUNDED))",
        "no update has that length to the last bit",
    ),
    (
        "mechanisms/draws",
        "rest = np.clip((_LEVELS * chance - levels) * _REST, 0, np.nextafter(_REST, 0))",
        "rest = np.clip((_LEVELS * chance - levels) * _REST, 0, np.nextafter(_REST, 1))",
        "the next number towards 1 is the next one towards 0",
    ),
    (
        "ledger/__init__",
        'return json.dumps([asdict(entry) for entry in entries], indent=1) + "\\n"',
        'return json.dumps([asdict(entry) for entry in entries], indent=0) + "\\n"',
        "how far a file of entries is indented",
    ),
    (
        "ledger/__init__",
        'return json.dumps([asdict(entry) for entry in entries], indent=1) + "\\n"',
        'return json.dumps([asdict(entry) for entry in entries], indent=2) + "\\n"',
        "how far a file of entries is indented",
    ),
    (
        "accounting/composition",
        "_ORDERS = [2, 2.25, 2.5, 2.75, 3, 3.5, *range(4, 17), 20, 24, 32, 48, 64, 128, 256]  # of Renyi divergence",
        "_ORDERS = [2, 2.25, 2.5, 2.75, 3, 3.5, *range(17, 4), 20, 24, 32, 48, 64, 128, 256]  # of Renyi divergence",
        "a bound by fewer orders is larger, and is used only beyond an epsilon of 100, where low orders are the best",
    ),
    (
        "accounting/composition",
        "_GRID, _LARGE = 1e-3, 100.0  # grid of privacy losses, and the largest epsilon for which it is used",
        "_GRID, _LARGE = 0.002, 100.0  # grid of privacy losses, and the largest epsilon for which it is used",
        "on any grid the figure is an upper bound; on this one it is less than a thousandth above",
    ),
    (
        "accounting/composition",
        "_TAIL = 1e-30  # upper bound on the probability outside of the numbers that are summed",
        "_TAIL = 2e-30  # upper bound on the probability outside of the numbers that are summed",
        "1e-30 more or less of a delta shows in no figure",
    ),
    (
        "accounting/composition",
        "mode, deviation = count * truth, math.sqrt(count * truth * (1 - truth))",
        "mode, deviation = count * truth, math.sqrt((count * truth / (1 - truth)))",
        _WIDER,
    ),
    (
        "accounting/composition",
        "mode, deviation = count * truth, math.sqrt(count * truth * (1 - truth))",
        "mode, deviation = count * truth, math.sqrt(count * truth * ((1 + truth)))",
        _WIDER,
    ),
    (
        "accounting/composition",
        "reach = 12 * deviation + 100",
        "reach = 13 * deviation + 100",
        "beyond 11 deviations and 99 more no number has a chance in double precision",
    ),
    (
        "accounting/composition",
        "reach = 12 * deviation + 100",
        "reach = 11 * deviation + 100",
        "beyond 11 deviations and 99 more no number has a chance in double precision",
    ),
    (
        "accounting/composition",
        "reach = 12 * deviation + 100",
        "reach = 12 * deviation + 101",
        "beyond 11 deviations and 99 more no number has a chance in double precision",
    ),
    (
        "accounting/composition",
        "reach = 12 * deviation + 100",
        "reach = 12 * deviation + 99",
        "beyond 11 deviations and 99 more no number has a chance in double precision",
    ),
    (
        "accounting/composition",
        "low, high = 0, len(loss_X) - 1  # delta(loss[high]) = 0 is within the budget; find the first loss that is",
        "low, high = 1, len(loss_X) - 1  # delta(loss[high]) = 0 is within the budget; find the first loss that is",
        "at the least loss, which is below zero, epsilon' is 0 as it is at the next one",
    ),
    (
        "accounting/composition",
        "return max(0.0, float(loss_X[low]) + math.log(max(mass - budget, 5e-324) / other))",
        "return max(0.0, float(loss_X[low]) + math.log(max(mass - budget, 1e-323) / other))",
        "it only keeps the logarithm from failing, where epsilon' is 0",
    ),
    (
        "accounting/composition",
        "if together < 1e-3:",
        "if (together <= 0.001):",
        "of a multiplier of exactly 0.001 either can be computed, and both are upper bounds",
    ),
    (
        "accounting/composition",
        "while spends(high) > epsilon:",
        "while (spends(high) >= epsilon):",
        "a multiplier of a power of ten spends an epsilon to the last bit by chance alone",
    ),
    (
        "accounting/composition",
        "return float(_accounting().get_epsilon_gaussian(together, delta))",
        "return _accounting().get_epsilon_gaussian(together, delta)",
        "it is a number already",
    ),
    (
        "accounting/composition",
        "while high / low > 1 + 10.0**-_DIGITS / 4:",
        "while high / low > 1 + 20.0**-_DIGITS / 4:",
        "the bound is rounded up to four digits, of which both are a fraction",
    ),
    (
        "accounting/composition",
        "while high / low > 1 + 10.0**-_DIGITS / 4:",
        "while high / low > 1 + 10.0**-_DIGITS / 3:",
        "the bound is rounded up to four digits, of which both are a fraction",
    ),
    (
        "evaluation/unigram",
        "alpha = min(ALPHAS, key=lambda each: _perplexity(counts_V, each, held_out)) if held_out else UNCHOSEN",
        "alpha = min(ALPHAS, key=lambda each: _perplexity(each, counts_V, held_out)) if held_out else UNCHOSEN",
        "counts + alpha = alpha + counts",
    ),
    (
        "server/aggregation",
        "shares_V = np.divide(self.weight, self.holders_V, out=np.zeros_like(self.holders_V), where=held_V)",
        "shares_V = np.divide(self.weight, self.holders_V, out=np.ones_like(self.holders_V), where=held_V)",
        "the sum of a row that no client holds is zero",
    ),
)


def reason(module: str, before: str, after: str) -> str:
    """Why a mutant may survive; empty if nothing says so."""
    file = module.removeprefix("fedtext/").removesuffix(".py")
    return next((why for *mutant, why in EQUIVALENTS if mutant == [file, before, after]), "")
