// Prints the events of a family of runs, one JSON object a line, after checking every commit.
//
//     node read_run.js URL STREAM SUBJECT SCHEMA_FILE
//
// All that it knows of foldlog is the schema of a commit, and what that says of `rev`, `prev` and `sum`.
// A commit that breaks one of these ends it with exit code 1 and a line that says which and why.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

import { DeliverPolicy, jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { Ajv2020 } from "ajv/dist/2020.js";

const [url, stream, subject, schemaFile] = process.argv.slice(2);

const ajv = new Ajv2020({ strict: true, strictTypes: false, allErrors: false });
ajv.addKeyword({ keyword: "x-volatile", schemaType: "boolean" });
const isCommit = ajv.compile(JSON.parse(readFileSync(schemaFile, "utf8")));

const sha256 = (...parts) => {
  const hash = createHash("sha256");
  parts.forEach((part) => hash.update(part));
  return hash.digest("hex");
};

/** What is wrong with a commit behind `head` ({rev, digest} of its predecessor), or "". */
function fault(data, commit, head) {
  if (!isCommit(commit)) return ajv.errorsText(isCommit.errors);
  const tail = Buffer.byteLength(',"sum":""}') + commit.sum.length;
  if (commit.sum !== sha256(data.subarray(0, data.length - tail), "}").slice(0, 16)) return "wrong sum";
  if (commit.rev !== head.rev + 1) return `begins at revision ${commit.rev}, not ${head.rev + 1}`;
  if (commit.prev !== head.digest) return "its predecessor is another commit";
  return "";
}

function* eventsOf(commit) {
  for (const [index, event] of commit.events.entries()) {
    const path = event.agent_path || commit.path;
    yield {
      ...event,
      run_id: commit.run,
      root_id: commit.root,
      agent: event.agent || commit.path.split("/").at(-1),
      agent_path: path,
      revision: commit.rev + index,
      at: commit.at,
    };
  }
}

const connection = await connect({ servers: url });
const consumer = await jetstream(connection).consumers.get(stream, {
  filter_subjects: subject,
  deliver_policy: DeliverPolicy.All,
});
const heads = new Map();
let left = (await consumer.info(true)).num_pending;
if (left > 0) {
  for await (const message of await consumer.consume()) {
    const head = heads.get(message.subject) ?? { rev: 0, digest: "" };
    let commit, wrong;
    try {
      commit = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(message.data));
      wrong = fault(message.data, commit, head);
    } catch (error) {
      wrong = error.message;
    }
    if (wrong) {
      console.error(`the commit at position ${message.seq}: ${wrong}`);
      process.exit(1);
    }
    heads.set(message.subject, { rev: commit.rev + commit.events.length - 1, digest: sha256(message.data) });
    for (const event of eventsOf(commit)) console.log(JSON.stringify(event));
    if (--left === 0) break;
  }
}
await connection.close();
