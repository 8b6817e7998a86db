"""Finding plug-ins, and loading their classes.

A file is identified by its text: its classes are in a module named after the digest of the text, in every process and
on every machine, so that pickles of them can be loaded wherever the text has been loaded.
"""

import hashlib
import importlib
import importlib.util
import inspect
import linecache
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import PydanticUndefinedAnnotation

from fedtext import metrics
from fedtext.adversaries import ATTACKS, Attack, Collusion
from fedtext.aggregations import AGGREGATIONS, Aggregation
from fedtext.aggregations.base import undeclared
from fedtext.audits import AUDITS, Audit
from fedtext.config.claims import inherited_claims
from fedtext.corpora import CORPORA, CorpusConfig
from fedtext.errors import UserError
from fedtext.mechanisms import MECHANISMS, Mechanism
from fedtext.methods import METHODS, Method
from fedtext.models import MODELS
from fedtext.models.base import ClassifierConfig, ModelConfig
from fedtext.models.language import LanguageConfig
from fedtext.runtime.paths import expanded
from fedtext.schema import names_of

FOLDER = "plugins"  # subfolder for the files, in the folder of a run or of a model
LISTS: list[list[Any]] = [metrics.METRICS]  # lists to which a plug-in may append; modules above add their own


@dataclass(frozen=True)
class Kind:
    """Parts of one kind: their word in messages, their base class, and the dict of their names."""

    word: str
    base: type
    classes: dict[str, Any]


KINDS = (
    Kind("method", Method, METHODS),
    Kind("mechanism", Mechanism, MECHANISMS),
    Kind("aggregation", Aggregation, AGGREGATIONS),
    Kind("corpus", CorpusConfig, CORPORA),
    Kind("model", ModelConfig, MODELS),
    Kind("audit", Audit, AUDITS),
    Kind("attack", Attack, ATTACKS),
)


@dataclass(frozen=True)
class Plugin:
    """A plug-in, loaded or not.

    Attributes:
        name: The file's name, or the name of an installed module.
        digest: SHA-256 of its source; of a package, of all its Python files.
        source: The file's text; None for a module, which must be installed wherever it is used.
    """

    name: str
    digest: str
    source: str | None = field(default=None, repr=False)

    @property
    def module(self) -> str:
        """Name of its module."""
        return self.name if self.source is None else f"fedtext_plugin_{self.digest[:16]}"

    @property
    def is_loaded(self) -> bool:
        """Whether this process has run it already."""
        return self.module in _LOADED

    @property
    def place(self) -> str:
        """Its name in tracebacks. It is no path, since the file may change later."""
        return f"<{self.name} {self.digest[:8]}>"

    @property
    def kept(self) -> str:
        """Its name in an experiment that is stored in the folder of a run or of a model."""
        return self.name if self.source is None else f"{FOLDER}/{self.name}"


@dataclass(frozen=True)
class Loaded:
    """A plug-in with its classes, and with the entries that it appends to each of ``LISTS``."""

    plugin: Plugin
    parts: list[tuple[Kind, Any]]
    appended: list[list[Any]]


_LOADED: dict[str, Loaded] = {}  # by the name of the module


def find_plugin(name: Any, folder: Path | None = None) -> Plugin:
    """Find a plug-in, without running it.

    Args:
        name: The path of a file, ending in ``.py``, or the name of an installed module.
        folder: The folder to which a path is relative, before the working folder.

    Raises:
        UserError: There is none, or the file cannot be read.
    """
    if isinstance(name, Plugin):
        return name
    if not isinstance(name, str | Path) or not str(name):
        raise UserError(
            f"plugins: {name!r} is not a plug-in: name a file, such as my_method.py, or an installed module"
        )
    if str(name).endswith(".py") or "/" in str(name):
        path = expanded(name, "plugins")
        places = [each / path for each in dict.fromkeys((folder or Path.cwd(), Path.cwd()))]
        try:
            file = next((place for place in places if place.is_file()), None)
        except OSError as error:  # its name is too long, or a folder is closed to the user
            raise UserError(f"plugins: {name} cannot be read ({error.strerror}): name another file") from error
        if file is None:
            raise UserError(f"plugins: there is no file {' or '.join(map(str, dict.fromkeys(places)))}")
        try:
            source = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"plugins: {file} cannot be read ({error})") from error
        return Plugin(file.name, hashlib.sha256(source.encode()).hexdigest(), source)
    return _LOADED[str(name)].plugin if str(name) in _LOADED else _module(str(name))


def _module(name: str) -> Plugin:
    """Find an installed module or package, and read its source."""
    try:
        spec = importlib.util.find_spec(name)
    except (Exception, SystemExit) as error:  # its parent packages are imported
        raise UserError(f"plugins: module {name} cannot be imported ({type(error).__name__}: {error})") from error
    if spec is None:
        raise UserError(f"plugins: there is no module {name}: install its package, or name a file, such as {name}.py")
    folders = spec.submodule_search_locations
    if folders is not None:
        files = sorted(file for folder in folders for file in Path(folder).rglob("*.py"))
    else:
        files = [Path(spec.origin)] if spec.origin else []
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + (file.read_bytes() if file.is_file() else b"") + b"\0")
    return Plugin(name, digest.hexdigest())


def load_plugin(plugin: Plugin) -> Loaded:
    """Run a plug-in's source or import its module, once in a process.

    Raises:
        UserError: It raises an exception, defines no part, or is another version than the one installed here.
    """
    if plugin.module not in _LOADED:
        here = plugin if plugin.source is not None else _module(plugin.name)
        starts = [len(each) for each in LISTS]
        try:
            parts = list(_parts(here, _run(here)))
        finally:  # appended entries are used only while the plug-in is active
            appended = [each[start:] for each, start in zip(LISTS, starts, strict=True)]
            for each, start in zip(LISTS, starts, strict=True):
                del each[start:]
        _LOADED[plugin.module] = Loaded(here, parts, appended)
    found = _LOADED[plugin.module]
    if found.plugin.digest != plugin.digest:
        raise UserError(f"plugins: {plugin.name} is installed here in another version: install the same one everywhere")
    return found


def _run(plugin: Plugin) -> ModuleType:
    """Make the plug-in's module.

    Raises:
        UserError: Its code raises an exception. The message names the line.
    """
    name = plugin.place
    try:
        if plugin.source is None:
            return importlib.import_module(plugin.name)
        module = ModuleType(plugin.module)
        module.__file__ = name
        sys.modules[plugin.module] = module
        linecache.cache[name] = (len(plugin.source), None, plugin.source.splitlines(keepends=True), name)
        exec(compile(plugin.source, name, "exec"), vars(module))
        return module
    except (Exception, SystemExit) as error:
        if plugin.source is not None:
            sys.modules.pop(plugin.module, None)
        numbers = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
        line = error.lineno if isinstance(error, SyntaxError) else numbers[-1] if numbers else None
        where = f"{plugin.name}, line {line}" if line else plugin.name
        raise UserError(f"plugins: {where}: {type(error).__name__}: {error}") from error


def _parts(plugin: Plugin, module: ModuleType) -> Iterator[tuple[Kind, Any]]:
    """Yield the classes of a module that an experiment can name, each with its kind.

    Raises:
        UserError: There are none, or one of them lacks a method.
    """
    none, nameless = True, ""
    classes: Iterable[Any] = dict.fromkeys(value for value in vars(module).values() if isinstance(value, type))
    for cls in classes:
        own = cls.__module__ == plugin.module or cls.__module__.startswith(f"{plugin.module}.")
        for kind in KINDS if own else ():
            if not issubclass(cls, kind.base) or not names_of(cls):
                continue
            if "name" not in inspect.get_annotations(cls):  # it has that of the class from which it is derived
                nameless = nameless or cls.__name__
                continue
            if missing := ", ".join(sorted(cls.__abstractmethods__)) or lacking(cls):
                article = "an" if kind.word[0] in "aeiou" else "a"
                raise UserError(
                    f"plugins: {plugin.name}: {cls.__name__} lacks {missing}, which {article} {kind.word} has"
                )
            _check_annotations(plugin, cls)
            none = False
            yield kind, cls
    if none and nameless:
        raise UserError(
            f"plugins: {plugin.name}: {nameless} has no name of its own, by which an experiment could choose it: add "
            'name: Literal["mine"] = "mine" to the class'
        )
    if none:
        raise UserError(
            f"plugins: {plugin.name} defines no method, mechanism, aggregation, corpus, model, audit or attack: derive "
            'a class from Method, for example, and give it a name: Literal["mine"] = "mine"'
        )


def _check_annotations(plugin: Plugin, cls: Any) -> None:
    """Raise UserError if a key of a plug-in's class has a type that is not defined, or that no key can have."""
    try:
        cls.model_rebuild()
    except PydanticUndefinedAnnotation as error:
        raise UserError(
            f"plugins: {plugin.name}: {cls.__name__} has a key of type {error.name}, which is not defined: import it, "
            "or define it before the class"
        ) from error
    except Exception as error:  # annotations that name what comes after the class are evaluated only here
        raise UserError(
            f"plugins: {plugin.name}: a key of {cls.__name__} has a type that no key can have "
            f"({type(error).__name__}: {str(error).splitlines()[0]}): write another type"
        ) from error


def lacking(cls: type) -> str:
    """Return what a class lacks that Python does not require."""
    if issubclass(cls, ModelConfig) and not issubclass(cls, ClassifierConfig | LanguageConfig):
        return "ClassifierConfig or LanguageConfig as a base"
    if issubclass(cls, Aggregation):
        return undeclared(cls)
    if issubclass(cls, Mechanism) and (claims := inherited_claims(cls)):
        return f"{' and '.join(claims)} of its own beside what it overrides"
    if issubclass(cls, Attack) and not issubclass(cls, Collusion):
        return "texts or send" if (cls.texts, cls.send) == (Attack.texts, Attack.send) else ""
    return ""


def only_audits(plugin: Plugin) -> bool:
    """Return whether all parts that a plug-in defines are audits, which change no result of training.

    Raises:
        UserError: It cannot be loaded.
    """
    return all(kind.base is Audit for kind, _ in load_plugin(plugin).parts)


def line_of(error: Exception) -> str:
    """Return the line of a plug-in's file in which an error was raised; empty if it was raised elsewhere."""
    places = {each.plugin.place: each.plugin.name for each in _LOADED.values()}
    modules = [each.plugin.name for each in _LOADED.values() if each.plugin.source is None]
    places |= {str(sys.modules[name].__file__): name for name in modules if name in sys.modules}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in places]
    return f"{places[frames[-1].filename]}, line {frames[-1].lineno}" if frames else ""


def told(error: Exception) -> str:
    """Return the type and the message of an error, and the line of a plug-in's file in which it was raised, if any."""
    where = line_of(error)
    return f"{type(error).__name__}: {error}" + (f" ({where})" if where else "")


def defining(cls: type) -> Plugin | None:
    """Return the plug-in that defines a class; None if no plug-in does."""
    return next((each.plugin for each in _LOADED.values() if any(cls is part for _, part in each.parts)), None)
