"""The base of everything a person can write in an experiment file, and helpers for ``{name: {options}}`` entries."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, PlainSerializer
from pydantic.fields import FieldInfo
from pydantic_core import core_schema


class Strict(BaseModel):
    """Immutable, and a key that is not known is an error: what is configured takes effect or is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


def _named(value: Any) -> Any:
    """``kteps`` -> ``{name: kteps}``."""
    return {"name": value} if isinstance(value, str) else value


def _tagged(value: Any) -> Any:
    """``clip`` and ``{clip: {norm: 1}}`` -> ``{name: clip, norm: 1}``."""
    if isinstance(value, dict) and len(value) == 1 and "name" not in value:
        ((name, options),) = value.items()
        if options is None:  # `- clip:` with nothing behind it
            return {"name": name}
        return {"name": name, **options} if isinstance(options, dict) else {"name": name, "value": options}
    return _named(value)


def _untagged(value: Any) -> Any:
    options = value.model_dump()
    name = options.pop("name")
    return {name: options} if options else name


def choice(*classes: Any, default: str | None = None, tagged: bool = False) -> Any:
    """A field that holds one of ``classes``, chosen by ``name``; the name alone stands for its defaults. A mapping
    without a name means ``default``, if there is one; with ``tagged`` it is ``{name: {options}}``."""

    def named(value: Any) -> Any:
        value = _tagged(value) if tagged else _named(value)
        return {"name": default, **value} if default and isinstance(value, dict) else value

    if len(classes) == 1:
        return Annotated[classes[0], BeforeValidator(named)]
    return Annotated[Annotated[union_of(classes), Field(discriminator="name")], BeforeValidator(named)]


def entry(*classes: Any) -> Any:
    """Like ``choice``, written as ``{name: {options}}``: the form of list entries such as ``uplink``."""
    return Annotated[
        Annotated[union_of(classes), Field(discriminator="name")],
        BeforeValidator(_tagged),
        PlainSerializer(_untagged),
    ]


def union_of(classes: tuple[Any, ...]) -> Any:
    union: Any = classes[0]
    for other in classes[1:]:
        union = union | other
    return union


class Extensible:
    """Annotate a field whose classes are looked up whenever its model is rebuilt, so that those of plug-ins can join.

    A value is dumped as what it is, also where its class is no longer among them.

    >>> MethodField = Annotated[Method, Extensible(lambda: choice(*METHODS.values()))]

    Args:
        type_of: Returns the type of the field, as ``choice`` or ``entry`` make it.
    """

    def __init__(self, type_of: Callable[[], Any]) -> None:
        self.type_of = type_of

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        made: Any = handler.generate_schema(self.type_of())
        return {"serialization": core_schema.simple_ser_schema("any"), **made}


def classes_of(field: FieldInfo) -> list[type[BaseModel]]:
    """The classes of which a field may hold one, or a list; each once, in their order."""

    def among(parts: Iterable[Any]) -> list[type[BaseModel]]:
        extensible = [part.type_of() for part in parts if isinstance(part, Extensible)]
        return [found for part in extensible or parts for found in inside(part)]

    def inside(annotation: Any) -> list[type[BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return [annotation]
        return among(get_args(annotation))

    return list(dict.fromkeys(among((field.annotation, *field.metadata))))


def names_of(cls: type[BaseModel]) -> tuple[str, ...]:
    """The names by which a class is chosen; none if it is not chosen by name."""
    return get_args(cls.model_fields["name"].annotation) if "name" in cls.model_fields else ()
