"""An agent's `mcp_servers` table: one frozen value per server, validated without connecting.

The shape is the usual one, `{command, args, env, cwd}` or `{url, headers}`, with an optional `type` (or `transport`).
Our own keys are `oauth`, `effects`, `postconditions`, `trust_annotations`, `tools`, `exclude`, `timeout_s` and
`connect_timeout_s`. `${VAR}` in any string of the usual keys and of `oauth` is replaced by that environment variable of
the connecting process, when it connects; in a postcondition `${name}` is an argument of the call.
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
    """A call of another tool of the server that only reads; `arguments` may contain `${name}` of the verified call."""

    tool: Text
    arguments: dict[str, Any] = {}


class ToolPostcondition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The assertions that must hold after a call of a tool, judged by the result of its probe, else by its own."""

    assertions: list[dict[str, dict[str, Any]]]
    probe: ToolProbe | None = None


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of every server's entry, however the server is reached.

    `effects` declares the effect of running a tool's call twice, also for tools that the server does not offer yet.
    Without an entry, a tool's annotations decide if `trust_annotations` is set (readOnlyHint: pure, idempotentHint:
    idempotent), else it is unsafe. `postconditions` has the assertions about a tool's calls, also by the server's own
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
        """The name of the server in messages."""
        return " ".join((self.command, *self.args))


class OAuth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The credentials for a server over HTTP.

    With `authorization_code` a person logs in once (`foldlog mcp login`); a client without a `client_id` registers
    itself, or is identified by `client_metadata_url`. With `client_credentials` the client sends its `client_secret`,
    or signs with its `private_key` (PEM). `issuer` names the authorization server that the credentials belong to.
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
        """The name of the server in messages."""
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
    """Return the entries as values, with `${VAR}` unresolved. Raises `AgentConfigError` with the server and the key."""
    return {name: _parse(name, entry) for name, entry in servers.items()}


def server_problems(servers: Mapping[str, Any]) -> list[ConfigProblem]:
    """Return the problems of the entries that show without connecting: for each server the first of its kind."""
    found: list[ConfigProblem] = []
    for name, entry in servers.items():
        try:
            _parse(name, entry)
        except AgentConfigError as error:
            found += error.problems
    return found


def servers_schema(ref_template: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schema of an entry, and the tables it refers to by `ref_template`, such as `#/$defs/{name}`."""
    (stdio, http), tables = msgspec.json.schema_components(
        [StdioServer, HttpServer], ref_template=ref_template
    )
    for table, kind in ((tables["StdioServer"], StdioServer), (tables["HttpServer"], HttpServer)):
        words = [word for word, named in _KINDS.items() if named is kind]
        table["properties"] |= {key: {"type": ["string", "null"], "examples": words} for key in _KIND_KEYS}
    return {"anyOf": [stdio, http]}, tables


def resolve(name: str, config: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
    """Return the entry with each `${VAR}` replaced. Raises `ConfigError` with the server, key and unset variable."""

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
    """Return the entry with every string of its usual keys changed; `change` gets the key's path and the string."""

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
        _refuse("mcp_servers", "a server's name must not be empty")
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
        _refuse(f"{path}.private_key", "a private key is only used by the grant client_credentials")
    elif oauth.client_secret and not oauth.client_id:
        _refuse(f"{path}.client_secret", "a client_secret needs a `client_id`")
    url = urllib.parse.urlsplit(oauth.client_metadata_url or "https://example.com/client")
    if url.scheme != "https" or url.path in ("", "/"):
        _refuse(f"{path}.client_metadata_url", "it must be an https URL with a path")


def _refuse(path: str, why: str) -> NoReturn:
    message = f"{path}: {why}"
    raise AgentConfigError(message, [ConfigProblem(path, message)])


def _unknown_keys(path: str, entry: Iterable[Any], known: Collection[str]) -> list[ConfigProblem]:
    return [
        ConfigProblem(
            f"{path}.{key}", f"unknown key '{path}.{key}'{nearest(str(key), known)}", near(str(key), known)
        )
        for key in entry
        if key not in known
    ]


def _check_effects(path: str, effects: object) -> None:
    """Check the declared effects. A value that is not a table is reported with the other fields."""
    for tool, effect in effects.items() if isinstance(effects, Mapping) else ():
        if effect not in get_args(ToolEffect):
            _refuse(
                f"{path}.{tool}", f"{effect!r} is not an effect; known are {', '.join(get_args(ToolEffect))}"
            )


def _check_postconditions(path: str, postconditions: Mapping[str, ToolPostcondition]) -> None:
    """Check the postconditions as far as possible before the tools' parameters are known."""
    for tool, written in postconditions.items():
        try:
            condition = Postcondition(tool, written.assertions)
        except ConfigError as error:
            _refuse(f"{path}.{tool}", str(error))
        if condition.reads_files:
            _refuse(
                f"{path}.{tool}",
                "an assertion about files needs a workspace, which a server's tool does not have",
            )


def _kind(path: str, entry: Mapping[str, Any]) -> type[ServerConfig]:
    """Return the type of the entry: a process or a URL."""
    if ("command" in entry) == ("url" in entry):
        known = dict.fromkeys((*StdioServer.__struct_fields__, *HttpServer.__struct_fields__, *_KIND_KEYS))
        message = f"{path}: give either `command` (a server over stdio) or `url` (over streamable HTTP)"
        problems = [*_unknown_keys(path, entry, known), ConfigProblem(path, message)]
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
    """Return the string if each `${` in it begins a variable."""
    if "${" in _VARIABLE.sub("", text):
        _refuse(path, "a variable is written ${NAME}, of letters, digits and _")
    return text


def check_named_tools(name: str, config: ServerConfig, offered: list[str], shown: Collection[str]) -> None:
    """Raise `ConfigError` if `tools` or `exclude` names a tool that the server does not offer.

    Otherwise an agent would silently lack the tool, or have one that it should not have. `shown` are the names that a
    model sees, without the prefix that they share. `effects` and `postconditions` use the server's own names, and may
    name a tool that the server offers later; a name that looks like a misspelt one is logged. The tool of a probe has
    to exist if the tool that it verifies does.
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
