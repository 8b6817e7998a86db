"""Equivalent mutants of ``fedtext/methods/``."""

EQUIVALENTS = (
    *(
        (
            "methods/apfl",
            "outward = ((value >= 1) & (gradient < 0)) | ((value <= 0) & (gradient > 0))",
            changed,
            "a gradient of 0 is 0 in either case",
        )
        for changed in (
            "outward = ((value >= 1) & ((gradient <= 0))) | ((value <= 0) & (gradient > 0))",
            "outward = ((value >= 1) & (gradient < 0)) | ((value <= 0) & ((gradient >= 0)))",
        )
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
        "methods/copies",
        "whole = isinstance(share, float) and share == 1",
        "whole = isinstance(share, float) and share == 2",
        "1 * private + 0 * shared is the private parameter: only time is saved",
    ),
    (
        "methods/fedmmd",
        "kernel_NN = torch.stack([torch.exp(-distances_NN / (mean * width)) for width in WIDTHS]).sum(0)",
        "kernel_NN = torch.stack([torch.exp(-distances_NN / ((mean / width))) for width in WIDTHS]).sum(0)",
        "with each width its reciprocal is among them",
    ),
    (
        "methods/kteps",
        'terms["diversity"] = hsic(o_s_BF, o_p_BF, self.bandwidth, batch.native)',
        'terms["diversity"] = hsic(o_p_BF, o_s_BF, self.bandwidth, batch.native)',
        "HSIC is symmetric",
    ),
    (
        "methods/hsic",
        "return NARROWEST * features_BF.detach().double().square().sum(1).mean() + 1e-12",
        "return NARROWEST * features_BF.detach().double().square().sum(1).mean() + 2e-12",
        "some positive number, lest 0 / 0 is computed where features are 0: any gives a kernel of exp(0) = 1",
    ),
    (
        "methods/hsic",
        "return gram_BB - gram_BB.mean(0, keepdim=True) - gram_BB.mean(1, keepdim=True) + gram_BB.mean()",
        "return gram_BB - gram_BB.mean(0, keepdim=False) - gram_BB.mean(1, keepdim=True) + gram_BB.mean()",
        "a row of means is subtracted from all rows either way",
    ),
    (
        "methods/state",
        "sums = {name: self.lr_sums[name] or 1.0 for name in self.received}",
        "sums = {name: self.lr_sums[name] or 2.0 for name in self.received}",
        "any number by which the zeros of a parameter that does not move are divided gives zeros",
    ),
)
