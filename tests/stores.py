"""An object store on this machine that speaks S3."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BUCKET = "fedtext-tests"
KEY, SECRET = "AKIDFORTESTS", "a-secret-that-nothing-may-print"


@dataclass(frozen=True)
class Store:
    """A bucket, with the filesystem of pyarrow that sees it. Requests of the methods in ``denied``, such as PUT, are
    refused with status 403, and noted in ``refused``."""

    filesystem: Any
    endpoint: str
    denied: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)

    def uri(self, path: str) -> str:
        """The URI of a folder or file, which needs nothing from the environment but credentials."""
        return f"s3://{BUCKET}/{path}?region=us-east-1&scheme=http&endpoint_override={self.endpoint}"

    def put(self, path: str, content: bytes) -> None:
        with self.filesystem.open_output_stream(f"{BUCKET}/{path}") as stream:
            stream.write(content)

    def copy(self, folder: Path, path: str) -> None:
        """Copy the files of a local folder to a folder of the bucket."""
        for file in folder.rglob("*"):
            if file.is_file():
                self.put(f"{path}/{file.relative_to(folder).as_posix()}", file.read_bytes())

    def get(self, path: str) -> bytes:
        with self.filesystem.open_input_stream(f"{BUCKET}/{path}") as stream:
            return stream.read()

    def remove(self, path: str) -> None:
        self.filesystem.delete_file(f"{BUCKET}/{path}")

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder of the bucket, also of those that are empty objects."""
        from pyarrow.fs import FileSelector

        found = self.filesystem.get_file_info(FileSelector(f"{BUCKET}/{path}"))
        return sorted(one.base_name for one in found if not one.is_file)

    def files(self, path: str = "") -> list[str]:
        """The names of all files in a folder of the bucket, relative to it."""
        from pyarrow.fs import FileSelector

        base = f"{BUCKET}/{path}".rstrip("/")
        found = self.filesystem.get_file_info(FileSelector(base, recursive=True, allow_not_found=True))
        return sorted(one.path.removeprefix(f"{base}/") for one in found if one.is_file)


@contextmanager
def object_store(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Store]:
    """Start a store with an empty bucket, and give this process its credentials and a cache folder of its own."""
    server_of = pytest.importorskip("moto.server", reason="the local object store is moto: pip install 'moto[server]'")
    fs = pytest.importorskip("pyarrow.fs")
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_EC2_METADATA_DISABLED": "true",
        "FEDTEXT_CACHE": str(cache),
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "FEDTEXT_DATA", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        endpoint = ":".join(map(str, server.get_host_and_port()))
        options = {"endpoint_override": endpoint, "scheme": "http", "region": "us-east-1"}
        filesystem = fs.S3FileSystem(**options, allow_bucket_creation=True)
        filesystem.create_dir(BUCKET)
        filesystem.delete_dir_contents(BUCKET, missing_dir_ok=True)  # moto keeps it while the process lives
        store = Store(filesystem, endpoint)
        server._server.app = _guarded(server._server.app, store)
        yield store
    finally:
        server.stop()


def _guarded(app: Any, store: Store) -> Any:
    def guarded(request: dict[str, Any], start: Any) -> Any:
        if request["REQUEST_METHOD"] not in store.denied:
            return app(request, start)
        store.refused.append(request["PATH_INFO"])
        start("403 Forbidden", [("Content-Type", "application/xml")])
        return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]

    return guarded
