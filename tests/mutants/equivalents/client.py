"""Equivalent mutants of ``fedtext/client/``."""

EQUIVALENTS = (
    (
        "client/evaluate",
        "evaluations.append(_evaluate_splits(host, client, stack, config.inference, name, splits, scored=False))",
        "evaluations.append(_evaluate_splits(host, client, stack, config.inference, name, splits, scored=True))",
        "scores that are taken for nothing: ``averaged`` has none",
    ),
    (
        "client/evaluate",
        "epochs = -(-config.steps * training.batch(len(texts)) // len(texts))  # as many batches as there are steps",
        "epochs = -((-config.steps * training.batch(len(texts)) * len(texts)))  # as many batches as there are steps",
        "more epochs than are drawn: as many batches as there are steps are taken of them",
    ),
    (
        "client/given",
        "self.last = None  # its memory is needed",
        "pass  # its memory is needed",
        "it is replaced in the next line: the memory of both is taken for a moment",
    ),
    (
        "client/texts",
        'if asked.texts != "all" and asked.texts < len(data.test):',
        'if asked.texts != "all" and (asked.texts <= len(data.test)):',
        "as many texts as there are, in their order, are all of them",
    ),
    (
        "client/trainer",
        "members = sorted(members, key=lambda client: (-len(self.clients[client].train), client))  # see Stack",
        "members = sorted(members, key=lambda client: ((len(self.clients[client].train)), client))  # see Stack",
        "in which order clients sit decides which of them step side by side: speed, and the last bits",
    ),
    (
        "client/trainer",
        "if wrong := outcome.problem(stack.flat_CP[place], tables[place]):",
        "if wrong := outcome.problem(tables[place], stack.flat_CP[place]):",
        "each is asked whether it is finite",
    ),
)
