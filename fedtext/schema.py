"""The base class of all sections of an experiment file, and helpers for ``{name: {options}}`` entries."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    Tag,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticKnownError, core_schema


def _no_integer(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("int_type")
    return value


def _no_number(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("float_type")
    return value


_NUMBERS: dict[str, Callable[[Any], Any]] = {"int": _no_integer, "float": _no_number}
_INNER = ("schema", "fields", "choices", "items_schema", "keys_schema", "values_schema")  # schemas within a schema


def _true_numbers(schema: Any, source: Any) -> Any:
    """Return a schema of pydantic's with numbers that refuse bool, which Python counts among the integers.

    Args:
        schema: The schema, or a list or dict of schemas.
        source: The class that it is of. Other classes in it have been changed with their own schemas.
    """
    if isinstance(schema, list):
        return [_true_numbers(one, source) for one in schema]
    if isinstance(schema, tuple):  # of a union: a schema and its name in messages
        return (_true_numbers(schema[0], source), *schema[1:])
    if not isinstance(schema, dict) or (schema.get("type") == "model" and schema["cls"] is not source):
        return schema
    kind = schema.get("type")
    if kind == "literal":
        return _true_literal(schema)
    if isinstance(kind, str) and kind in _NUMBERS:
        return core_schema.no_info_before_validator_function(_NUMBERS[kind], schema)
    if kind == "function-before" and schema["function"]["function"] in _NUMBERS.values():
        return schema
    inner = _INNER if isinstance(kind, str) else tuple(schema)  # without a type: schemas by their names
    return {key: _true_numbers(value, source) if key in inner else value for key, value in schema.items()}


def _true_literal(schema: Any) -> Any:
    """Return the schema of a ``Literal`` that refuses true and false, which equal 1 and 0, unless they are among its
    values."""
    values = schema["expected"]
    if not any(type(value) is int for value in values) or any(isinstance(value, bool) for value in values):
        return schema

    def no_bool(value: Any) -> Any:
        if isinstance(value, bool):
            raise PydanticKnownError("literal_error", {"expected": " or ".join(map(repr, values))})
        return value

    return core_schema.no_info_before_validator_function(no_bool, schema)


class Strict(BaseModel):
    """Base of all sections of an experiment: immutable, and unknown keys are errors.

    A field whose name Python reserves has the key as its alias: ``lambda_: float = Field(alias="lambda")``.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, serialize_by_alias=True
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Refuse true and false (in YAML also yes, no, on and off) where a number is declared."""
        found: CoreSchema = _true_numbers(handler(source), source)
        return found


Part = TypeVar("Part", bound=Strict)
_WHOLE = ("__dict__", "__iter__", "__eq__", "__hash__", "__repr_args__", "__replace__", "__copy__", "__deepcopy__")


def watched(part: Part) -> tuple[Part, set[str]]:
    """Return a copy of a section, and the names of its fields that have been read from the copy until now.

    Whatever reads the section as a whole has read all of its fields.
    """
    cls, fields, read = type(part), frozenset(type(part).model_fields), set[str]()

    def noted(self: Any, name: str) -> Any:
        if name in fields:
            read.add(name)
        elif name in _WHOLE or name.startswith(("model_", "_iter")):
            read.update(fields)
        return cls.__getattribute__(self, name)

    metaclass: Any = type(cls)
    made = metaclass(cls.__name__, (cls,), {"__getattribute__": noted, "__module__": cls.__module__})
    copy = made.model_construct(part.model_fields_set, **{name: getattr(part, name) for name in fields})
    read.clear()
    return copy, read


# Of a field that is a value or a mapping, as Annotated[Annotated[int, VALUE] | Annotated[Steps, KEYS], FORMS]: an error
# message is about the form that was written.
VALUE, KEYS = Tag("a value"), Tag("keys and values")
FORMS = Discriminator(lambda value: KEYS.tag if isinstance(value, dict | BaseModel) else VALUE.tag)


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
    """Make the type of a field whose value is one of ``classes``, chosen by ``name``. A name alone means its defaults.

    Args:
        classes: The classes.
        default: Name that is assumed for a mapping without a name.
        tagged: Whether ``{name: {options}}`` is accepted too.
    """

    def named(value: Any) -> Any:
        value = _tagged(value) if tagged else _named(value)
        return {"name": default, **value} if default and isinstance(value, dict) else value

    if len(classes) == 1:
        return Annotated[classes[0], BeforeValidator(named)]
    return Annotated[Annotated[union_of(classes), Field(discriminator="name")], BeforeValidator(named)]


def entry(*classes: Any) -> Any:
    """Make the type of a field like ``choice``, but written as ``{name: {options}}``, such as entries of ``uplink``."""
    return Annotated[
        Annotated[union_of(classes), Field(discriminator="name")],
        BeforeValidator(_tagged),
        PlainSerializer(_untagged),
    ]


def union_of(classes: tuple[Any, ...]) -> Any:
    """Return the union type of classes."""
    union: Any = classes[0]
    for other in classes[1:]:
        union = union | other
    return union


class Extensible:
    """Annotation of a field whose classes are looked up whenever its model is rebuilt, so that plug-ins can add some.

    A value is dumped by its own class, even if that is no longer among them.

    >>> MethodField = Annotated[Method, Extensible(lambda: choice(*METHODS.values()))]

    Args:
        type_of: Returns the type of the field, made by ``choice`` or ``entry``.
    """

    def __init__(self, type_of: Callable[[], Any]) -> None:
        self.type_of = type_of

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        made: Any = handler.generate_schema(self.type_of())
        return {"serialization": core_schema.simple_ser_schema("any"), **made}


def classes_of(field: FieldInfo) -> list[type[BaseModel]]:
    """Return the classes of a field's possible values, or of the entries of its list; each once, in their order."""

    def among(parts: Iterable[Any]) -> list[type[BaseModel]]:
        extensible = [part.type_of() for part in parts if isinstance(part, Extensible)]
        return [found for part in extensible or parts for found in inside(part)]

    def inside(annotation: Any) -> list[type[BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return [annotation]
        return among(get_args(annotation))

    return list(dict.fromkeys(among((field.annotation, *field.metadata))))


def fields_of(cls: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a class by their keys in an experiment file."""
    return {field.alias or name: field for name, field in cls.model_fields.items()}


def names_of(cls: type[BaseModel]) -> tuple[str, ...]:
    """Return the names by which a class is chosen; empty if it is not chosen by name."""
    return get_args(cls.model_fields["name"].annotation) if "name" in cls.model_fields else ()
