"""A REST catalog that does not let us in: it is said so, and no secret is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from frostline import config
from frostline.config import Settings
from frostline.errors import LakeError
from frostline.lake import catalog

SECRETS = {"rest.token": "t0k3n-of-mine", "rest.credential": "client-7:s3cr3t-of-mine"}


class Doorkeeper(BaseHTTPRequestHandler):
    """Lets nobody in, at the door or behind it, and repeats what it was given."""

    status = 401
    open_until = ""  # paths that end so are answered

    def do_GET(self) -> None:
        if self.open_until and self.path.partition("?")[0].endswith(self.open_until):
            self._answer(200, {"defaults": {}, "overrides": {}})
            return
        told = f"you said {self.headers['Authorization']}"
        self._answer(self.status, {"error": {"message": told, "type": "NotAuthorized", "code": self.status}})

    def do_POST(self) -> None:
        told = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer(self.status, {"error": "invalid_client", "error_description": f"you said {told}"})

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: dict[str, object]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def door() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), type("Doorkeeper", (Doorkeeper,), {})) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def behind(door: HTTPServer, directory: Path, secret: str) -> Settings:
    uri = f"http://127.0.0.1:{door.server_port}"
    given = {"lake.catalog": "rest", "rest.uri": uri, "lake.warehouse": str(directory), secret: SECRETS[secret]}
    return config.load(given).settings


@pytest.mark.parametrize("opens", ["", "/v1/config"], ids=["at the door", "behind it"])
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("status", [401, 403])
def test_a_catalog_that_does_not_let_us_in_is_named_and_no_secret_is(
    door: HTTPServer, tmp_path: Path, status: int, secret: str, opens: str
) -> None:
    settings = behind(door, tmp_path, secret)
    door.RequestHandlerClass.status, door.RequestHandlerClass.open_until = status, opens  # type: ignore[attr-defined]
    with pytest.raises(LakeError) as caught:
        catalog.check(settings)
    error = caught.value
    assert error.message == (
        f"the Iceberg catalog at {settings.rest.uri} does not let us in; the tables are as they were"
    )
    assert error.hint == "check rest.token or rest.credential"
    assert error.sqlstate == "08006"
    assert "you said" in (error.detail or "")
    for words in (error.message, error.detail or "", error.hint or "", str(error), repr(error)):
        assert "of-mine" not in words
