"""The names of the OpenTelemetry conventions for generative AI, kept in one place because they may still change.

Source: the repository opentelemetry/semantic-conventions-genai, as of its move there in 2026; the constants of
`opentelemetry.semconv` are marked as moved. Our own names begin with `foldlog.`.
"""

from __future__ import annotations

CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that, if `true`, includes messages, arguments and results in spans."""

OPERATION = "gen_ai.operation.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
ERROR_TYPE = "error.type"

CHAT, EXECUTE_TOOL, INVOKE_AGENT, INVOKE_WORKFLOW, PLAN = (
    "chat",
    "execute_tool",
    "invoke_agent",
    "invoke_workflow",
    "plan",
)

RUN_ID = "foldlog.run.id"
USER = "foldlog.user"
EXECUTOR = "foldlog.executor"
STATUS = "foldlog.status"
TRIGGER = "foldlog.trigger"
REQUEST_ID = "foldlog.request.id"
STEP = "foldlog.step"
ATTEMPT = "foldlog.attempt"
PHASE = "foldlog.phase"
REQUEST_DIGEST = "foldlog.request.digest"
COST_USD = "foldlog.cost.usd"
FORK_REVISION = "foldlog.fork.revision"

MODEL_DURATION = "gen_ai.client.operation.duration"
TOOL_DURATION = "gen_ai.execute_tool.duration"
AGENT_DURATION = "gen_ai.invoke_agent.duration"
WORKFLOW_DURATION = "gen_ai.invoke_workflow.duration"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - tokens of a model

RULE = "foldlog.rule"
VIOLATION = "foldlog.violation"
"""The name of the log record for an event that breaks a rule."""
RECORD_UID = "log.record.uid"

TOKENS, COST, TAKEOVERS, VIOLATIONS = (
    "foldlog.tokens",
    "foldlog.cost",
    "foldlog.takeovers",
    "foldlog.violations",
)
UNITS = {TOKENS: "{token}", COST: "USD", TAKEOVERS: "{takeover}", VIOLATIONS: "{violation}"}
"""foldlog's own counters with their units. Tokens are among them because the conventions' metric was replaced."""
