"""PCA compression of the word embedding (KTEPS*; Li et al. 2021, section 4.2, equations 10 to 12).

Legend: R rows of the table that are sent, D embedding, M components that are kept.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtext.accounting.entry import Bound
from fedtext.layout import TABLE
from fedtext.mechanisms.base import Mechanism, Shapes, Tensors
from fedtext.runtime.threads import one_blas_thread

BASIS = "embedding.basis"  # U on the wire, D x M


class Project(Mechanism):
    """Projection (KTEPS*, Li et al. 2021): sends principal components of the embedding in its place.

    Instead of the table E_RD, the client sends its compression Z_RM = E U and the projection U_DM, whose columns are
    the principal components d1 to d2 of E, counted from 1, both included. The server restores Z U^T.

    E consists of all rows that the client would send: its own rows or all rows, including <pad>. Components are
    eigenvectors of the covariance, from which the mean is removed; E itself is projected without centring, so that (1,
    D) changes E by rounding alone. For the server the components left out are a change of the table: leaving out d1 - 1
    components in each round removes further ones every time, not the same ones.
    """

    name: Literal["project"] = "project"
    d1: int = Field(2, ge=1, description="first component that is sent: the d1 - 1 largest are left out")
    d2: int = Field(150, ge=1, description="last component that is sent, at most model.embedding.dim")
    needs_table = True
    whole = True

    @model_validator(mode="after")
    def _ordered(self) -> "Project":
        if self.d1 > self.d2:
            raise ValueError(f"project: d1 ({self.d1}) is greater than d2 ({self.d2}): components d1 to d2 are sent")
        return self

    @property
    def kept(self) -> int:
        """M, the number of components that are sent."""
        return self.d2 - self.d1 + 1

    def apply(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], rng: np.random.Generator) -> Tensors:
        table_RD = np.add(received[TABLE], delta[TABLE], dtype=np.float64)
        with one_blas_thread():
            basis_DM = components(table_RD)[:, self.d1 - 1 : self.d2]  # equation 10
            compressed_RM = table_RD @ basis_DM  # equation 11
        return delta | {TABLE: compressed_RM.astype(np.float32), BASIS: basis_DM.astype(np.float32)}

    def restore(self, sent: Tensors, received: Mapping[str, NDArray[np.float32]]) -> Tensors:
        """Compute equation 12, as a change of the rows that the client received."""
        compressed_RM, basis_DM = sent[TABLE].astype(np.float64), sent[BASIS].astype(np.float64)
        with one_blas_thread():
            table_RD = compressed_RM @ basis_DM.T
        table_RD -= received[TABLE]
        others = {name: tensor for name, tensor in sent.items() if name != BASIS}
        return others | {TABLE: table_RD.astype(np.float32)}

    def leaves(self, shapes: Shapes) -> Shapes:
        if TABLE not in shapes:
            return shapes
        rows, dim = shapes[TABLE]
        return {**shapes, TABLE: (rows, self.kept), BASIS: (dim, self.kept)}

    def metrics(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], sent: Tensors) -> dict[str, float]:
        """Compute ``energy_kept``: the share of the eigenvalues d1..d2 of the covariance in the sum of all.

        It equals the variance of Z divided by that of E. (Section 4.2.2 of the paper says singular values, which are
        those of the covariance.)
        """
        table_RD = np.add(received[TABLE], delta[TABLE], dtype=np.float64)
        total = table_RD.var(0).sum()
        return {"energy_kept": float(sent[TABLE].var(0, dtype=np.float64).sum() / total) if total else 1.0}

    def bound(self, before: Bound) -> Bound:
        return Bound(why="behind project it lies on word vectors, whose norm no clip bounds")

    def sentences(self, before: Bound, hidden: bool) -> list[str]:
        no_guarantee = "" if hidden else "no (epsilon, delta) guarantee; "
        return [
            f"project: {no_guarantee}the server still receives the kept components of every word vector that a client "
            "sends, and the projection"
        ]

    def embedding_problem(self, dim: int) -> str:
        if self.d2 <= dim:
            return ""
        return f"project.d2 ({self.d2}) is more than the {dim} components that model.embedding.dim gives: lower it"


def components(table_RD: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the principal components of a table: eigenvectors of its covariance, as columns of a D x D matrix.

    They are in the order of decreasing variance. The sign of an eigenvector is arbitrary: its largest entry by absolute
    value (the first of equal ones) is made positive.
    """
    centred_RD = table_RD - table_RD.mean(0)
    _, ascending_DD = np.linalg.eigh(centred_RD.T @ centred_RD)
    vectors_DD = ascending_DD[:, ::-1]
    largest_D = np.abs(vectors_DD).argmax(0)
    return vectors_DD * np.sign(vectors_DD[largest_D, np.arange(len(largest_D))])
