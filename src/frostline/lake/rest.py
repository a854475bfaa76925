"""An Iceberg REST catalog, for PyIceberg and for Spark; the tables' files are reached with our own keys."""

from __future__ import annotations

import json
import warnings
from typing import Any

import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, OAuthError, RESTError, UnauthorizedError
from pyiceberg.table import CommitTableResponse, Table
from requests.adapters import HTTPAdapter

from frostline.config import RestSettings, Settings
from frostline.errors import LakeError

_DELEGATION = "X-Iceberg-Access-Delegation"
# Whatever can be wrong between here and there.
ERRORS = (RESTError, OAuthError, requests.RequestException)


class Bounded(HTTPAdapter):
    """PyIceberg waits forever unless told otherwise."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout

    def send(self, *args: Any, **options: Any) -> requests.Response:
        return super().send(*args, **{**options, "timeout": options.get("timeout") or self._timeout})


class _Complete(Bounded):
    """PyIceberg leaves out a number that Iceberg calls optional by now, and Nessie takes no column without it."""

    last_column_id = 0  # of the table that is committed to

    def send(self, request: Any, *args: Any, **options: Any) -> requests.Response:
        body = request.body.decode() if isinstance(request.body, bytes) else request.body or ""
        if '"add-schema"' in body:
            said = json.loads(body)
            for update in said.get("updates", ()):
                if update.get("action") == "add-schema":
                    ids = [field["id"] for field in update["schema"]["fields"]]
                    self.last_column_id = max(self.last_column_id, *ids)
                    update.setdefault("last-column-id", self.last_column_id)
            request.prepare_body(json.dumps(said).encode(), None)
        return super().send(request, *args, **options)


class Client(RestCatalog):
    """PyIceberg's, with an end to its patience and without asking for keys of the catalog's making."""

    def __init__(self, name: str, timeout: float, **properties: str) -> None:
        self._timeout = timeout
        super().__init__(name, **properties)

    def _create_session(self) -> requests.Session:
        session = super()._create_session()
        session.headers.pop(_DELEGATION, None)
        return session

    def _config_headers(self, session: requests.Session) -> None:
        # The first thing done to a session, before a token is asked for over it.
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Complete(self._timeout))
        super()._config_headers(session)

    def commit_table(self, table: Table, *args: Any) -> CommitTableResponse:
        for adapter in self._session.adapters.values():
            if isinstance(adapter, _Complete):
                adapter.last_column_id = table.metadata.last_column_id
        committed: CommitTableResponse = super().commit_table(table, *args)
        return committed


def client(settings: Settings, files: dict[str, str]) -> Client:
    with warnings.catch_warnings():
        # PyIceberg would rather be told where tokens are; asking the catalog itself is right for many.
        warnings.simplefilter("ignore")
        return Client(settings.lake.name, settings.rest.timeout, **(_properties(settings.rest) | files))


def spark(settings: Settings) -> dict[str, str]:
    milliseconds = str(int(settings.rest.timeout * 1000))
    return _properties(settings.rest) | {
        "type": "rest",
        "rest.client.connection-timeout-ms": milliseconds,
        "rest.client.socket-timeout-ms": milliseconds,
    }


def failed(error: Exception, rest: RestSettings) -> LakeError:
    """A catalog's error for a person, without any secret."""
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    for secret in (rest.token.get_secret_value(), rest.credential.get_secret_value().rpartition(":")[2]):
        line = line.replace(secret, "********") if secret else line
    if isinstance(error, requests.Timeout):
        what, hint = "does not answer in time", "try again when it does; rest.timeout says how long it may stay silent"
    elif isinstance(error, requests.RequestException):
        what, hint = "cannot be reached", "is it running, is rest.uri right? try again when it answers"
    elif isinstance(error, UnauthorizedError | ForbiddenError | OAuthError):
        what, hint = "does not let us in", "check rest.token or rest.credential"
    elif isinstance(error, RESTError):
        what, hint = "refused", "its own log may say more"
    else:
        what, hint = "does not answer as a catalog does", "is rest.uri the address that Iceberg clients are to use?"
    return LakeError(
        f"the Iceberg catalog at {rest.uri} {what}; the tables are as they were",
        detail=line,
        hint=hint,
        sqlstate="08006",
    )


def _properties(rest: RestSettings) -> dict[str, str]:
    given = {
        "uri": rest.uri,
        "warehouse": rest.warehouse,
        "token": rest.token.get_secret_value(),
        "credential": rest.credential.get_secret_value(),
        "oauth2-server-uri": rest.oauth_uri,
        "scope": rest.scope,
    }
    return {name: value for name, value in given.items() if value}
