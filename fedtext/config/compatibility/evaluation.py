"""Which metrics can be evaluated, and when."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from fedtext.config.selection import Validated
from fedtext.methods.base import Method

if TYPE_CHECKING:
    from fedtext.config.settings import Settings


def personalize(e: "Settings") -> Iterator[str]:
    """Check that Ap is the mean over evaluations at equal distances."""
    asked = e.evaluation.personalize
    if not asked and e.evaluation.personalize_at != "last":
        yield "evaluation.personalize_at: evaluation.personalize is null, so that there is no Ap: leave out one of them"
    if asked and asked.steps % asked.every:
        yield (
            f"evaluation.personalize.steps ({asked.steps}) is not a multiple of every ({asked.every}): models are "
            "evaluated after each `every` steps, the last time after all steps"
        )


def branches(e: "Settings") -> Iterator[str]:
    """Check that a branch that is to predict alone is one of two."""
    asked = e.evaluation.personalize
    if not asked or e.method.two_branches:
        return
    key, why = "evaluation.personalize", f"is for methods with two branches, and method {e.method.name} has one"
    if asked.inference != "both":
        yield f"{key}.inference: {asked.inference} {why}: leave it out"
    if any(variation.inference for variation in asked.also):
        yield f"{key}.also: inference {why}: leave it out"


def select(e: "Settings") -> Iterator[str]:
    """Check that a round's model is shared completely if it is selected, and not attacked."""
    if e.evaluation.select == "last":
        return
    key = f"evaluation.select: {e.evaluation.select}"
    if e.model.parted or type(e.method).private is not Method.private:
        whose = "model.adapter.lora.share: a" if e.model.parted else f"method {e.method.name}"
        yield f"{key} needs a completely shared model, and {whose} keeps parts of it at clients: leave it out"
    if e.audits:
        yield f"{key} is not compatible with audits, which need the updates of the last round: leave out one of them"


def validated(e: "Settings") -> Iterator[str]:
    """Check that the metrics of a selection and of thresholds are evaluated."""
    wanted = {*e.evaluation.thresholds, *([] if e.evaluation.select == "last" else [e.evaluation.select])}
    if wanted and not e.corpus.validation:
        yield "evaluation: select and thresholds need validation texts: set corpus.validation"
    if missing := sorted(wanted - e.evaluated_metrics):
        there = " or ".join(sorted(e.evaluated_metrics & set(get_args(Validated)))) or "none"
        yield f"evaluation: {missing[0]} is not evaluated with {e.method.name} and {e.model.name}: use {there}"


def best_round(e: "Settings") -> Iterator[str]:
    """Check that clients take part in rounds, and that test texts may be evaluated in each."""
    if not e.evaluation.union or not e.evaluation.union.best_round:
        return
    if e.evaluation.select != "last":
        yield "evaluation.union.best_round evaluates test texts each round, and evaluation.select once: leave out one"
    if e.method.pooled:
        yield (
            "evaluation.union.best_round evaluates the clients that take part in a round, and in those of method "
            f"{e.method.name} none does: leave it out"
        )


def generate(e: "Settings") -> Iterator[str]:
    """Check that there is a shared language model to continue texts with."""
    if not e.evaluation.generate:
        return
    if not e.language:
        yield f"evaluation.generate: model {e.model.name} is a classifier and continues no text: leave it out"
    elif not e.method.shares or not e.complete:
        yield (
            f"evaluation.generate: texts are continued by the server's model, and method {e.method.name} shares none "
            "that is complete: leave it out"
        )


def registered(e: "Settings") -> Iterator[str]:
    """Check that the model of a trial that is to be registered goes to MLflow."""
    if e.tracking.register_as and (e.save.model != "shared" or not e.tracking.model):
        yield "tracking.register needs the model in MLflow: set save.model to shared, and tracking.model to true"


RULES = (personalize, branches, select, validated, best_round, generate, registered)
