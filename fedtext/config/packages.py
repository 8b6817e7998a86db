"""The installed packages that an experiment's plug-ins are from, for models that are used on other machines."""

from collections.abc import Iterable, Sequence
from importlib import metadata, util

from fedtext.config.experiment import Experiment
from fedtext.config.loading import Plugin
from fedtext.config.package import Package
from fedtext.config.plugins import GROUP


def packages_of(plugins: Iterable[Plugin]) -> list[Package]:
    """Return the packages of those plug-ins that are installed modules, with their versions here."""
    return [_package(plugin.name) for plugin in plugins if plugin.source is None]


def needed_by(experiments: Iterable[Experiment]) -> list[Package]:
    """Return the packages of the plug-ins of experiments, each with the first key by which it is needed."""
    keys: dict[str, str] = {}
    for plugin, key in (pair for one in experiments for pair in one.keys_of_plugins.items()):
        if plugin.source is None:
            keys.setdefault(plugin.name, key)
    return [{**_package(module), "key": key} for module, key in keys.items()]


def missing(packages: Sequence[Package]) -> str:
    """Return which of the packages have a module that is not installed here, and what to do; empty if none."""
    lacking = [package for package in packages if util.find_spec(package["module"].partition(".")[0]) is None]
    if not lacking:
        return ""
    told = [f"{each['module']}{f' of the package {named(each)}' if each['name'] else ''}" for each in lacking]
    wanted = " ".join(f'"{requirement(each)}"' for each in lacking if each["name"])
    remedy = f"install it (pip install {wanted})" if wanted else "install it, or put it where Python finds modules"
    return f"the plug-in {' and '.join(told)}, which is not installed here: {remedy}"


def differing(packages: Sequence[Package]) -> str:
    """Return which of the packages are installed here in other versions, or not at all; empty if none."""
    found = {each["name"]: _version(each["name"]) for each in packages if each["name"]}
    told = [
        f"{named(each)}, and {found[each['name']] or 'none'} is installed here"
        for each in packages
        if each["name"] and found[each["name"]] != each["version"]
    ]
    return "; ".join(told)


def named(package: Package) -> str:
    """Return the name of a package and its version."""
    return f"{package['name']} {package['version']}"


def requirement(package: Package) -> str:
    """Return a package in its version as pip reads it, without the build of a local version, which indexes lack."""
    return f"{package['name']}=={package['version'].partition('+')[0]}"


def _package(module: str) -> Package:
    entries = metadata.entry_points(group=GROUP)
    name = next((entry.dist.name for entry in entries if entry.dist and entry.module == module), "")
    if not name:
        name = next(iter(metadata.packages_distributions().get(module.partition(".")[0], [])), "")
    return Package(module=module, name=name, version=_version(name))


def _version(name: str) -> str:
    """Return the installed version of a package; empty if it is not installed."""
    try:
        return metadata.version(name) if name else ""
    except metadata.PackageNotFoundError:
        return ""
