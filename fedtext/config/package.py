"""The installed package of a plug-in, as files name it. Lists of runs read it, and do not wait for torch."""

from typing import NotRequired

from typing_extensions import TypedDict


class Package(TypedDict):
    """An installed module and the package that it is from. A module that no package has, has no name and version."""

    module: str
    name: str
    version: str
    key: NotRequired[str]  # of an experiment, by which it is needed
