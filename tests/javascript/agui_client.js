// A page of AG-UI without a page: commands as lines of JSON on standard input, what the client has made of it on standard
// output. `run` says something, `resume` answers all interrupts, `fresh` is the page loaded again.
import readline from "node:readline";
import { HttpAgent } from "@ag-ui/client";

const [url, token, threadId] = process.argv.slice(2);
const page = () => new HttpAgent({ url, threadId, headers: { Authorization: `Bearer ${token}` } });
let agent = page();

async function run(parameters) {
  const events = [];
  let foldlogRunId;
  let told = "";
  const subscriber = {
    onEvent: ({ event }) => {
      events.push(event);
      if (event.type === "RUN_STARTED") foldlogRunId = event.metadata.foldlog.runId;
      if (event.type === "TOOL_CALL_START" && parameters.tellCalls) tell({ calls: event.toolCallName, foldlogRunId });
      if (event.type === "RUN_ERROR") told = event.message;
    },
  };
  try {
    await agent.runAgent(parameters, subscriber);
  } catch (error) {
    told = error.message;
  }
  tell({
    types: events.map((event) => event.type),
    last: events.at(-1),
    error: told,
    interrupts: agent.pendingInterrupts,
    messages: agent.messages
      .filter(({ role }) => role !== "activity")
      .map(({ role, content, toolCalls }) => ({ role, content, toolCalls })),
  });
}

function tell(what) {
  process.stdout.write(`${JSON.stringify(what)}\n`);
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { command, runId, text, payload, tools, tellCalls } = JSON.parse(line);
  if (command === "fresh") {
    agent = page();
    agent.messages = [{ id: `u-${text}`, role: "user", content: text }];
    await run({ runId });
  } else if (command === "run") {
    agent.messages = [...agent.messages, { id: `u-${text}`, role: "user", content: text }];
    await run({ runId, tools, tellCalls });
  } else {
    const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload }));
    await run({ runId, resume });
  }
}
