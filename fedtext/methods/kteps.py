"""KTEPS: Knowledge Transfer Enhanced Private-Shared (Li et al. 2021, equations 6-9, algorithm 1).

Shared: embedding E, encoder H, projection P_s, classifier G_s. Private, kept between rounds: projection P_p, classifier
G_p, and optionally a second encoder and table. Both projections can be left out.

Legend: B batch, F features, C classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Literal, TypeGuard

from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor, nn, zeros_like
from torch.nn.functional import cross_entropy

from fedtext.methods.base import Batch, Inference, Method, Model
from fedtext.methods.hsic import hsic
from fedtext.methods.native_kteps import Branches, NativeTerms, Terms
from fedtext.models.fused import FusedLoss, RecurrentPass, by_client, names_of
from fedtext.models.output import layers_between_relus
from fedtext.models.parts import Parts
from fedtext.models.plain import is_plain

Architecture = Literal["classifier", "encoder", "everything"]
NAMES = ("ce_shared", "ce_private", "transfer", "diversity")


class TwoBranches(nn.Module):
    """A shared and a private branch, each with a projection and a classifier, on one or two encoders and tables.

    It returns logits_BC of the shared and the private branch, and their projected features_BF; without ``projection``
    the features are the encoders' outputs.
    """

    def __init__(self, parts: Parts, architecture: Architecture, projection: bool) -> None:
        super().__init__()
        self.embedding, self.encoder = parts.embedding(), parts.encoder()
        self.projection_shared: nn.Module = parts.projection() if projection else nn.Identity()
        self.head_shared = parts.head()
        self.projection_private: nn.Module = parts.projection() if projection else nn.Identity()
        self.head_private = parts.head()
        self.encoder_private = None if architecture == "classifier" else parts.encoder()
        self.embedding_private = parts.embedding() if architecture == "everything" else None

    def encoded(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the outputs of the encoder of each branch, which may be the same."""
        o_BF = self.encoder(self.embedding, batch)
        if self.encoder_private is None:
            return o_BF, o_BF
        return o_BF, self.encoder_private(self.embedding_private or self.embedding, batch)

    def layers(self, projected: bool) -> list[Tensor]:
        """Return weights and biases for ``Branches``; empty if the terms have to be computed otherwise.

        Args:
            projected: Whether there are projections.
        """
        shared = self._branch(self.projection_shared, self.head_shared, projected)
        private = self._branch(self.projection_private, self.head_private, projected)
        # The functions in C take the widths of both branches from the shared one.
        alike = [tensor.shape for tensor in shared] == [tensor.shape for tensor in private]
        return shared + private if alike else []

    @staticmethod
    def _branch(projection: nn.Module, head: nn.Module, projected: bool) -> list[Tensor]:
        """Return weights and biases of a branch; empty if its layers are others than those which C computes."""
        dense = layers_between_relus(head)
        if not dense:
            return []
        if not projected:
            return dense if is_plain(projection, nn.Identity) else []
        if not is_plain(projection, nn.Linear) or projection.bias is None:
            return []
        square = projection.in_features == projection.out_features == dense[0].shape[1]
        return [projection.weight, projection.bias, *dense] if square else []

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        o_BF, own_BF = self.encoded(batch)
        o_s_BF, o_p_BF = self.projection_shared(o_BF), self.projection_private(own_BF)  # equation 6
        return self.head_shared(o_s_BF), self.head_private(o_p_BF), o_s_BF, o_p_BF


@dataclass(frozen=True)
class FusedTerms:
    """The terms of KTEPS and their gradients on one table, without autograd.

    Attributes:
        method: The method.
        encoders: The encoders of the shared and the private branch, which may be the same.
        layers: Names of the layers' weights and biases, as ``TwoBranches.layers`` orders them.
    """

    method: "KTEPS"
    encoders: tuple[RecurrentPass, ...]
    layers: tuple[str, ...]

    @staticmethod
    def of(method: "KTEPS", network: TwoBranches) -> "FusedTerms | None":
        modules = [each for each in (network.encoder, network.encoder_private) if each is not None]
        encoders = [RecurrentPass.of(network, encoder) for encoder in modules]
        layers = names_of(network, network.layers(method.projection))
        if not layers or network.embedding_private is not None:
            return None
        found = tuple(encoder for encoder in encoders if encoder)
        return FusedTerms(method, found, layers) if len(found) == len(modules) else None

    def takes(self, batch: Batch) -> bool:
        return self.encoders[0].takes(batch)

    def __call__(
        self, parameters: Mapping[str, Tensor], batch: Batch, grads: Mapping[str, Tensor]
    ) -> list[dict[str, float]]:
        states = [encoder.states(parameters, batch) for encoder in self.encoders]
        upstream = [zeros_like(each[0]) for each in states]
        features = states[0][0], states[-1][0], upstream[0], upstream[-1]
        layers = [[named[name] for name in self.layers] for named in (parameters, grads)]
        weights, terms = [self.method.weights.get(name, 1.0) for name in NAMES], []
        for labels_B, (shared_BF, private_BF, *slopes), (own, found) in by_client(batch.labels_B, features, layers):
            branches = Branches.compute(self.method.asked(labels_B), shared_BF, private_BF, own)
            branches.gradients(weights, found, *slopes)
            values = dict(zip(NAMES, branches.values.tolist(), strict=True))
            terms.append({name: values[name] for name in self.method.computed(len(labels_B))})
        for encoder, each, grad_NF in zip(self.encoders, states, upstream, strict=True):
            encoder.gradients(parameters, batch, each, grad_NF, grads)
        return terms


class KTEPS(Method):
    """KTEPS (Li et al. 2021): a shared and a private classifier, with knowledge transfer and a diversity term.

    The objective is equation 9: mean(CE_s + CE_p + lambda1 * transfer) + lambda2 * diversity. All parameters are
    updated jointly.
    """

    name: Literal["kteps"] = "kteps"
    lambda1: float = Field(0.01, ge=0, description="weight of the knowledge transfer, equation 8")
    lambda2: float = Field(0.01, ge=0, description="weight of the diversity (HSIC), equation 7")
    temperature: float = Field(0.25, gt=0, description="T of equation 8")
    distillation: Literal["printed", "standard"] = Field(
        "printed",
        description="printed: equation 8 as it is printed, linear in the private branch; standard: the teacher's "
        "softened probabilities against the student's log-probabilities",
    )
    bandwidth: PositiveFloat | Literal["median"] = Field(
        "median", description="b of exp(-d^2 / b) in equation 7; median: median of the batch's squared distances"
    )
    architecture: Architecture = Field(
        "classifier",
        description="private parts besides P_p: the classifier; encoder and classifier; embedding, encoder and "
        "classifier (A, B, C of section 5.6.4, whose table has projection = false and lambda2 = 0)",
    )
    projection: bool = Field(
        True,
        description="whether there are P_s and P_p of equation 6; false: the input of the classifiers is the encoder's "
        "output (section 5.6.4)",
    )
    two_branches = True

    @model_validator(mode="after")
    def _branches_differ(self) -> "KTEPS":
        if self.lambda2 and self.architecture == "classifier" and not self.projection:
            raise ValueError(
                "projection: without projections both branches have the same features, whose diversity cannot be "
                "increased: set lambda2 to 0, or architecture to encoder or everything"
            )
        return self

    def network(self, parts: Parts) -> nn.Module:
        return TwoBranches(parts, self.architecture, self.projection)

    def private(self, parameter: str) -> bool:
        return parameter.partition(".")[0].endswith("_private")

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        if native := model.run(lambda network: self._native_terms(network, batch)):
            return native
        g_s_BC, g_p_BC, o_s_BF, o_p_BF = model(batch)
        terms = {
            "ce_shared": cross_entropy(g_s_BC, batch.labels_B),
            "ce_private": cross_entropy(g_p_BC, batch.labels_B),
        }
        if "transfer" in self.computed(len(batch.labels_B)):
            terms["transfer"] = self.transfer(g_s_BC, g_p_BC)
        if "diversity" in self.computed(len(batch.labels_B)):
            terms["diversity"] = hsic(o_s_BF, o_p_BF, self.bandwidth, batch.native)
        return terms

    def _native_terms(self, network: TwoBranches, batch: Batch) -> dict[str, Tensor]:
        """Compute the terms in C; empty if they have to be computed otherwise."""
        stacked = batch.words is not None and batch.words.packing.clients > 1
        if not batch.native or stacked or not self._in_c(network) or not (layers := network.layers(self.projection)):
            return {}
        wanted = self.computed(len(batch.labels_B))
        computed = NativeTerms.apply(self.asked(batch.labels_B.contiguous()), *network.encoded(batch), *layers)
        return {name: term for name, term in zip(NAMES, computed, strict=True) if name in wanted}

    def asked(self, labels_B: Tensor) -> Terms:
        """Return the settings of the terms of a batch with these labels, contiguous."""
        standard, bandwidth = self.distillation == "standard", 0.0 if self.bandwidth == "median" else self.bandwidth
        diverse = "diversity" in self.computed(len(labels_B))
        return Terms(labels_B, self.projection, self.temperature, standard, diverse, bandwidth)

    def computed(self, texts: int) -> list[str]:
        """Return the names of the terms of a batch with this number of texts; HSIC of one sample does not exist."""
        there = True, True, bool(self.lambda1), bool(self.lambda2) and texts > 1
        return list(compress(NAMES, there))

    def fused(self, network: nn.Module) -> FusedLoss | None:
        return FusedTerms.of(self, network) if self._in_c(network) else None

    def _in_c(self, network: nn.Module) -> TypeGuard[TwoBranches]:
        """Whether the functions in C compute the terms, and not what a subclass has replaced."""
        return is_plain(network, TwoBranches) and type(self).transfer is KTEPS.transfer

    @property
    def weights(self) -> Mapping[str, float]:
        return {"transfer": self.lambda1, "diversity": self.lambda2}

    def transfer(self, g_s_BC: Tensor, g_p_BC: Tensor) -> Tensor:
        """Compute equation 8, averaged over the batch. The shared branch is the teacher: it gets no gradient."""
        teacher_BC = g_s_BC.detach() / self.temperature
        if self.distillation == "printed":
            return -(g_p_BC.softmax(1) * teacher_BC.log_softmax(1)).sum(1).mean()
        return -(teacher_BC.softmax(1) * g_p_BC.log_softmax(1)).sum(1).mean()

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        """Return class probabilities: ``both`` is the mean of both branches (section 5.3)."""
        g_s_BC, g_p_BC, _, _ = model(batch)
        if inference == "both":
            return (g_s_BC.softmax(1) + g_p_BC.softmax(1)) / 2
        return (g_s_BC if inference == "shared" else g_p_BC).softmax(1)
