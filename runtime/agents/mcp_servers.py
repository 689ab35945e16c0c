"""What an agent's `mcp_servers` table says: one frozen value per server, checked without connecting.

The shape is the usual one, `{command, args, env, cwd}` or `{url, headers}`, with an optional `type` (or `transport`).
Ours are `oauth`, `effects`, `postconditions`, `trust_annotations`, `tools`, `exclude`, `timeout_s` and
`connect_timeout_s`. `${VAR}` in any string of the usual part and of `oauth` stands for an environment variable of the
process that connects, at the time it connects; in a postcondition `${name}` is an argument of the call.
"""

from __future__ import annotations

import logging
import re
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, NoReturn, get_args

import msgspec

from ...eventlog.errors import AgentConfigError, ConfigError, ConfigProblem
from ...eventlog.events import ToolEffect
from ..core.postconditions import Postcondition
from ..ports.suggestions import near, nearest

logger = logging.getLogger(__name__)

Text = Annotated[str, msgspec.Meta(min_length=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class ToolProbe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of another tool of the server that only looks; `arguments` may hold `${name}` of the call looked at."""

    tool: Text
    arguments: dict[str, Any] = {}


class ToolPostcondition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must hold after a call of a tool, judged by what its probe answers, else by its own result."""

    assertions: list[dict[str, dict[str, Any]]]
    probe: ToolProbe | None = None


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every server's entry may say, however the server is reached.

    `effects` declares what a second run of a tool would do, also of tools that the server does not offer yet; a tool
    that it does not name is what its annotations say if `trust_annotations` is set (readOnlyHint: pure, idempotentHint:
    idempotent), else unsafe. `postconditions` says what must hold after a call of a tool, likewise by the server's own
    names. `tools` lists the tools to offer (null: all), by the server's names or those that a model sees; `exclude`
    those of them not to offer. `timeout_s` bounds one call, `connect_timeout_s` one connection until its tools are
    listed.
    """

    effects: dict[str, ToolEffect] = {}
    postconditions: dict[str, ToolPostcondition] = {}
    trust_annotations: bool = False
    tools: list[str] | None = None
    exclude: list[str] = []
    timeout_s: Seconds = 60.0
    connect_timeout_s: Seconds = 30.0


class StdioServer(ServerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that is started as a process; `env` is added to the few variables that are safe to inherit."""

    command: Text
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None

    @property
    def address(self) -> str:
        """What to name it by in a message."""
        return " ".join((self.command, *self.args))


class OAuth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a server over HTTP is told who calls.

    With `authorization_code` a person logs in once (`foldlog mcp login`); a client that has no `client_id` registers
    itself, or is known by `client_metadata_url`. With `client_credentials` the client shows its `client_secret`, or
    signs with its `private_key` (PEM). `issuer` names the authorization server that the credentials belong to.
    """

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: str = ""
    client_secret: str = ""
    private_key: str = ""
    signing_algorithm: Literal["ES256", "RS256"] = "ES256"
    client_metadata_url: str | None = None
    scope: str | None = None
    issuer: str | None = None


class HttpServer(ServerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that is reached by streamable HTTP; `headers` go with every request, and the token of `oauth`."""

    url: Text
    headers: dict[str, str] = {}
    oauth: OAuth | None = None

    @property
    def address(self) -> str:
        """What to name it by in a message."""
        return self.url


ServerConfig = StdioServer | HttpServer

_KIND_KEYS = ("type", "transport")
_KINDS: dict[str, type[ServerConfig]] = {
    "stdio": StdioServer,
    "http": HttpServer,
    "streamable-http": HttpServer,
    "streamablehttp": HttpServer,
}
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def parse_servers(servers: Mapping[str, Mapping[str, Any]]) -> dict[str, ServerConfig]:
    """The entries as values, `${VAR}` still in them. Raises `AgentConfigError` that names the server and the key."""
    return {name: _parse(name, entry) for name, entry in servers.items()}


def server_problems(servers: Mapping[str, Any]) -> list[ConfigProblem]:
    """What is wrong with the entries, as far as it shows without connecting: of each server the first of its kind."""
    found: list[ConfigProblem] = []
    for name, entry in servers.items():
        try:
            _parse(name, entry)
        except AgentConfigError as error:
            found += error.problems
    return found


def servers_schema(ref_template: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON Schema of an entry, and the tables it refers to by `ref_template`, such as `#/$defs/{name}`."""
    (stdio, http), tables = msgspec.json.schema_components(
        [StdioServer, HttpServer], ref_template=ref_template
    )
    for table, kind in ((tables["StdioServer"], StdioServer), (tables["HttpServer"], HttpServer)):
        words = [word for word, named in _KINDS.items() if named is kind]
        table["properties"] |= {key: {"type": ["string", "null"], "examples": words} for key in _KIND_KEYS}
    return {"anyOf": [stdio, http]}, tables


def resolve(name: str, config: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
    """The entry with each `${VAR}` replaced. Raises `ConfigError` that names server, key and unset variable."""

    def replace(key: str, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            variable = match[1]
            if variable not in environ:
                raise ConfigError(
                    f"mcp_servers.{name}.{key}: the environment variable {variable} is not set. "
                    "Set it for the process that connects, or write the value."
                )
            return environ[variable]

        return _VARIABLE.sub(value, text)

    return _map_strings(config, replace)


def _map_strings(config: ServerConfig, change: Callable[[str, str], str]) -> ServerConfig:
    """The entry with every string of its usual part changed; `change` gets the key's path and the string."""

    def table(key: str, values: dict[str, str]) -> dict[str, str]:
        return {name: change(f"{key}.{name}", value) for name, value in values.items()}

    if isinstance(config, HttpServer):
        url, headers = change("url", config.url), table("headers", config.headers)
        oauth = config.oauth
        if oauth is not None:
            texts = {
                key: change(f"oauth.{key}", value)
                for key, value in msgspec.structs.asdict(oauth).items()
                if value is not None
            }
            oauth = msgspec.convert(texts, OAuth)
        return msgspec.structs.replace(config, url=url, headers=headers, oauth=oauth)
    return msgspec.structs.replace(
        config,
        command=change("command", config.command),
        args=[change(f"args[{index}]", value) for index, value in enumerate(config.args)],
        env=table("env", config.env),
        cwd=None if config.cwd is None else change("cwd", config.cwd),
    )


def _parse(name: str, entry: Any) -> ServerConfig:
    path = f"mcp_servers.{name}"
    if not name:
        _refuse("mcp_servers", "a server's name is not empty")
    if not isinstance(entry, Mapping):
        _refuse(path, f"expected a table with `command` or `url`, got {type(entry).__name__}")
    kind = _kind(path, entry)
    fields = {key: value for key, value in entry.items() if key not in _KIND_KEYS}
    if unknown := _unknown_keys(path, fields, (*kind.__struct_fields__, *_KIND_KEYS)):
        raise AgentConfigError("; ".join(problem.message for problem in unknown), unknown)
    _check_effects(f"{path}.effects", fields.get("effects"))
    try:
        config = msgspec.convert(fields, kind)
    except msgspec.ValidationError as invalid:
        message, _, where = str(invalid).partition(" - at `$")
        _refuse(f"{path}{where.rstrip('`')}", message)
    _map_strings(config, lambda key, text: _checked(f"{path}.{key}", text))
    _check_postconditions(f"{path}.postconditions", config.postconditions)
    if isinstance(config, HttpServer) and config.oauth is not None:
        _check_oauth(f"{path}.oauth", config.oauth)
    return config


def _check_oauth(path: str, oauth: OAuth) -> None:
    if oauth.grant == "client_credentials":
        if not oauth.client_id or bool(oauth.client_secret) == bool(oauth.private_key):
            _refuse(
                path, "the grant client_credentials needs `client_id`, and `client_secret` or `private_key`"
            )
    elif oauth.private_key:
        _refuse(f"{path}.private_key", "a key signs for the grant client_credentials alone")
    elif oauth.client_secret and not oauth.client_id:
        _refuse(f"{path}.client_secret", "a secret belongs to a `client_id`")
    url = urllib.parse.urlsplit(oauth.client_metadata_url or "https://example.com/client")
    if url.scheme != "https" or url.path in ("", "/"):
        _refuse(f"{path}.client_metadata_url", "it is an https URL with a path")


def _refuse(path: str, why: str) -> NoReturn:
    told = f"{path}: {why}"
    raise AgentConfigError(told, [ConfigProblem(path, told)])


def _unknown_keys(path: str, entry: Iterable[Any], known: Collection[str]) -> list[ConfigProblem]:
    return [
        ConfigProblem(
            f"{path}.{key}", f"unknown key '{path}.{key}'{nearest(str(key), known)}", near(str(key), known)
        )
        for key in entry
        if key not in known
    ]


def _check_effects(path: str, effects: object) -> None:
    """What is not a table is told with the rest."""
    for tool, effect in effects.items() if isinstance(effects, Mapping) else ():
        if effect not in get_args(ToolEffect):
            _refuse(f"{path}.{tool}", f"{effect!r} is no effect; known are {', '.join(get_args(ToolEffect))}")


def _check_postconditions(path: str, postconditions: Mapping[str, ToolPostcondition]) -> None:
    """As far as it shows before the tools, and so their parameters, are known."""
    for tool, written in postconditions.items():
        try:
            condition = Postcondition(tool, written.assertions)
        except ConfigError as error:
            _refuse(f"{path}.{tool}", str(error))
        if condition.reads_files:
            _refuse(
                f"{path}.{tool}", "an assertion about files needs a workspace, and a server's tool has none"
            )


def _kind(path: str, entry: Mapping[str, Any]) -> type[ServerConfig]:
    """Return whether the entry is of a process or of a URL."""
    if ("command" in entry) == ("url" in entry):
        known = dict.fromkeys((*StdioServer.__struct_fields__, *HttpServer.__struct_fields__, *_KIND_KEYS))
        told = f"{path}: give either `command` (a server over stdio) or `url` (over streamable HTTP)"
        problems = [*_unknown_keys(path, entry, known), ConfigProblem(path, told)]
        raise AgentConfigError("; ".join(problem.message for problem in problems), problems)
    kind: type[ServerConfig] = StdioServer if "command" in entry else HttpServer
    for key in _KIND_KEYS:
        named = entry.get(key)
        if named is None:
            continue
        meant = _KINDS.get(str(named).lower().replace("_", "-"))
        if meant is None:
            _refuse(f"{path}.{key}", f"{named!r} is not supported; use 'stdio' or 'http' (streamable HTTP)")
        if meant is not kind:
            _refuse(f"{path}.{key}", f"{named!r} contradicts `{'command' if 'command' in entry else 'url'}`")
    return kind


def _checked(path: str, text: str) -> str:
    """The string, if each `${` in it begins a variable."""
    if "${" in _VARIABLE.sub("", text):
        _refuse(path, "a variable is written ${NAME}, of letters, digits and _")
    return text


def check_named_tools(name: str, config: ServerConfig, offered: list[str], shown: Collection[str]) -> None:
    """Raise `ConfigError` if `tools` or `exclude` names a tool that the server does not offer.

    Silence would leave an agent without the tool, or with one that it should not have. `shown` are the names that a
    model sees, without the prefix that they share. `effects` and `postconditions` go by the server's own names and may
    name a tool that the server offers later; a name that looks like a misspelt one is logged. The tool of a probe has
    to be there when the tool is that it looks after.
    """
    for key, named in (("tools", config.tools or []), ("exclude", config.exclude)):
        for tool in named:
            if tool not in offered and tool not in shown:
                raise _not_offered(f"mcp_servers.{name}.{key}", tool, offered)
    for tool, condition in config.postconditions.items():
        if tool in offered and condition.probe is not None and condition.probe.tool not in offered:
            raise _not_offered(
                f"mcp_servers.{name}.postconditions.{tool}.probe", condition.probe.tool, offered
            )
    for key, later in (("effects", config.effects), ("postconditions", config.postconditions)):
        for tool in later:
            if tool not in offered and (meant := near(tool, offered, likeness=0.8)) is not None:
                logger.warning(
                    "mcp_servers.%s.%s: the server offers no tool %r; did you mean %r?",
                    name,
                    key,
                    tool,
                    meant,
                )


def _not_offered(path: str, tool: str, offered: list[str]) -> ConfigError:
    hint = nearest(tool, offered) or "; it offers none"
    return ConfigError(f"{path}: the server offers no tool {tool!r}{hint}")
