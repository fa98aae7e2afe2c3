// MCP servers behind bindings: objects of the real npm class McpAgent in a second Worker, called without HTTP.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import {
  callerObjects,
  rpcBundles,
  rpcServers,
  rustCallerObjects,
  rustServers,
  SERVERS,
} from "./support/rpc-servers.mjs";
import { withStorage } from "./support/storage.mjs";
import { until } from "./support/until.mjs";
import { startWorker, temporaryFolder } from "./support/worker.mjs";

const TOOLS = (
  "increment self knows ask ask_twice sample ask_by_sdk grow progress fail large wait was_aborted break"
).split(" ");

/** One object that calls servers, ours or that of the package. */
class Caller {
  constructor(worker, name) {
    Object.assign(this, { worker, name });
  }

  async ask(verb, body = {}) {
    const pathname = `/agents/rpc-caller/${this.name}/${verb}`;
    const answer = await this.worker.fetch(pathname, { method: "POST", body: JSON.stringify(body) });
    const text = await answer.text();
    assert.equal(answer.status, 200, `${verb}: ${answer.status} ${text}\n${this.worker.output}`);
    return JSON.parse(text);
  }

  async add(name, options = {}) {
    const added = await this.ask("add", { id: "counter", name, binding: "COUNTER", ...options });
    assert.equal(added.state, "ready", JSON.stringify(added));
    return added;
  }

  call(tool, args = {}, options = {}) {
    return this.ask("call", { id: "counter", tool, args, ...options });
  }

  async text(tool, args, options) {
    const result = await this.call(tool, args, options);
    assert.ok(result.content, `${tool}: ${JSON.stringify(result)}`);
    return result.content[0].text;
  }

  async self() {
    return JSON.parse(await this.text("self"));
  }

  evict() {
    return this.worker.evict("RpcCaller", this.name);
  }
}

/** A name that no other test has: servers of one name are one object. */
let number = 0;
const fresh = (what) => `${what} ${(number += 1)}`;

const start = async (options = {}) =>
  startWorker({ build: "build/test-worker", objects: callerObjects, beside: await rpcServers(), ...options });

describe("a server behind a binding", () => {
  let worker;
  before(async () => (worker = await start()));
  after(() => worker.dispose());
  const caller = (name = fresh("caller").replace(" ", "-")) => new Caller(worker, name);

  test("is connected, listed and called, with numbers as they are", async () => {
    const agent = caller();
    const name = fresh("My  Counter");
    await agent.add(name);
    const { counter } = await agent.ask("list");
    const url = `rpc:my-counter-${number}`;
    assert.deepEqual(
      [counter.name, counter.url, counter.state, counter.transport, counter.error],
      [name, url, "ready", "rpc", null],
    );
    assert.ok(counter.revision.startsWith("2025-"), counter.revision);
    assert.deepEqual(counter.tools.sort(), TOOLS.toSorted());
    assert.equal(await agent.text("increment", { by: 1.5 }), "1.5");
    const { structuredContent } = await agent.call("increment", { by: 2 });
    assert.deepEqual(structuredContent, { count: 3.5, half: 1.75, big: 2 ** 53 });
    assert.equal((await agent.self()).name, url);
    assert.match(await agent.text("knows"), /rpc-caller/);
  });

  test("is shared by all who use its name, unless each has its own", async () => {
    const [one, two, three, four] = [caller(), caller(), caller(), caller()];
    const name = fresh("Shared");
    await one.add(name);
    await two.add(name);
    await three.add(name, { isolated: true });
    await four.add(name, { isolated: true });
    await one.text("increment", { by: 1 });
    assert.equal(await two.text("increment", { by: 1 }), "2");
    assert.equal(await three.text("increment", { by: 1 }), "1");
    assert.equal(await four.text("increment", { by: 1 }), "1");
    await three.evict();
    assert.equal(await three.text("increment", { by: 1 }), "2");
    const names = await Promise.all([one, two, three, four].map(async (each) => (await each.self()).name));
    assert.equal(names[0], names[1]);
    assert.equal(new Set(names).size, 3, names.join());
  });

  test("is started with props, which it keeps over its own wake", async () => {
    const agent = caller();
    const props = { user: "ada", n: 0.5, nested: { list: [1, null, "é"] } };
    await agent.add(fresh("With props"), { props });
    const before = await agent.self();
    assert.deepEqual(before.props, props);
    await worker.evict("Counter", before.name, SERVERS);
    const later = await agent.self();
    assert.deepEqual(later.props, props);
    assert.notEqual(later.instance, before.instance);
  });

  test("asks the user, more than once, and several at the same time", async () => {
    const agent = caller();
    await agent.add(fresh("Asking"));
    assert.equal(await agent.text("ask", { message: "Ada" }), "hello Ada");
    assert.equal(await agent.text("ask_twice"), '["first","second"]');
    const names = ["a", "b", "c", "d", "e"];
    const answers = await Promise.all(names.map((message) => agent.text("ask", { message })));
    assert.deepEqual(answers, names.map((name) => `hello ${name}`));
  });

  test("asks through the SDK, too", async () => {
    const agent = caller();
    await agent.add(fresh("Asking by SDK"));
    assert.equal(await agent.text("sample"), '["sampled","sampled"]');
    const names = ["a", "b", "c"];
    const answers = await Promise.all(names.map((message) => agent.text("ask_by_sdk", { message })));
    assert.deepEqual(answers, names.map((name) => `hello ${name}`));
    assert.equal(await agent.text("ask", { message: "Ada" }), "hello Ada");
  });

  test("tells of progress and of changed lists while it is called", async () => {
    const agent = caller();
    await agent.add(fresh("Telling"));
    await agent.ask("told");
    assert.equal(await agent.text("progress"), "done");
    const progress = (await agent.ask("told")).filter((entry) => entry.startsWith("progress"));
    assert.deepEqual(progress, ["progress 1", "progress 2", "progress 3"]);
    assert.equal(await agent.text("grow", { name: "sprout" }), "grown");
    await until("the new tool to be listed", async () => (await agent.ask("list")).counter.tools.includes("sprout"));
    assert.equal(await agent.text("sprout"), "sprout");
  });

  test("wakes with its caller, which knows its tools before", async () => {
    const agent = caller();
    await agent.add(fresh("Sleepy"));
    await agent.text("increment", { by: 5 });
    for (const policy of ["eager", "lazy"]) {
      await agent.add(fresh("Sleepy"), { policy });
      await agent.evict();
      const { counter } = await agent.ask("list");
      assert.equal(counter.tools.length, TOOLS.length, policy);
      assert.equal(await agent.text("ask", { message: policy }), `hello ${policy}`);
      assert.equal((await agent.ask("list")).counter.state, "ready");
    }
  });

  test("is used on after it was evicted itself, and after it went down in a call", async () => {
    const agent = caller();
    await agent.add(fresh("Shaky"));
    await agent.text("increment", { by: 1 });
    await worker.evict("Counter", (await agent.self()).name, SERVERS);
    assert.equal(await agent.text("increment", { by: 1 }), "2");
    assert.equal(await agent.text("ask", { message: "again" }), "hello again");
    const broken = await agent.call("break");
    assert.match(broken.error, /broken on purpose/);
    assert.equal(await agent.text("increment", { by: 1 }), "3");
    // It was greeted again: it knows who calls.
    assert.match(await agent.text("knows"), /rpc-caller/);
  });

  test("fails in a tool, is given up, and answers at length", async () => {
    const agent = caller();
    await agent.add(fresh("Troubled"));
    const failed = await agent.call("fail");
    assert.deepEqual([failed.isError, failed.content[0].text], [true, "on purpose, in a tool"]);
    const late = await agent.call("wait", {}, { timeout: 300 });
    assert.equal(late.code, "timeout");
    await until("the server to have heard of it", async () => (await agent.text("was_aborted")) === "true");
    // 4 MiB are allowed; each letter takes two bytes.
    assert.equal((await agent.text("large", { letters: 2_000_000 })).length, 2_000_000);
    for (const letters of [2_200_000, 5_000_000]) {
      const large = await agent.call("large", { letters });
      assert.equal(large.error, "the answer is larger than 4194304 bytes", `${letters}`);
    }
    assert.equal(await agent.text("increment", { by: 1 }), "1");
  });

  test("that cannot be started, or serves no MCP, or is not there, is an error of that server alone", async () => {
    const agent = caller();
    await agent.add(fresh("Works"));
    const added = (id, binding) => agent.ask("add", { id, name: fresh(id), binding });
    const failing = await added("failing", "FAILING");
    assert.match(failing.error, /on purpose, while starting/);
    const plain = await added("plain", "PLAIN");
    assert.match(plain.error, /does not serve MCP/);
    for (const binding of ["NONE", "__proto__", "constructor"]) {
      const { error } = await added("none", binding);
      assert.equal(error, `binding "${binding}" not found in env`);
    }
    await agent.evict();
    const states = Object.entries(await agent.ask("list")).map(([id, { state, error }]) => [id, state, Boolean(error)]);
    const [, failingState] = states.find(([id]) => id === "failing");
    assert.ok(["failed", "reconnecting", "connecting"].includes(failingState), failingState);
    assert.deepEqual(states.filter(([id]) => id !== "failing").sort(), [
      ["counter", "ready", false],
      ["none", "failed", true],
      ["plain", "failed", true],
    ]);
    assert.equal(await agent.text("increment", { by: 1 }), "1");
  });

  test("that returns odd things breaks nothing", async () => {
    const agent = caller();
    await agent.ask("add", { id: "counter", name: fresh("Odd"), binding: "ODD" });
    const errors = {
      bigint: /no JSON/,
      function: /no JSON|failed/,
      text: /no JSON/,
      throw_text: /just a text/,
      nothing: /without the answer/,
    };
    for (const [tool, pattern] of Object.entries(errors)) {
      const { error } = await agent.call(tool);
      assert.match(error ?? "no error", pattern, tool);
    }
    const { error } = await agent.call("throw");
    assert.ok(error.length < 600 && error.includes("xxx") && !error.includes("\n"), error);
    assert.equal((await agent.ask("list")).counter.state, "ready");
  });
});

describe("a server behind a binding that is written in Rust", () => {
  const serves = async (agent, evict, { isNpm }) => {
    const props = { user: "ada", list: [1.5, null] };
    await agent.add("My Rust Counter", { binding: "RUST", props });
    assert.equal(await agent.text("increment", { by: 1.5 }), "1.5");
    const self = { name: "rpc:my-rust-counter", props };
    assert.deepEqual(await agent.self(), self);
    assert.match(await agent.text("knows"), isNpm ? /"version"/ : /rpc-caller/);
    assert.equal(await agent.text("ask", { message: "Ada" }), "hello Ada");
    assert.equal(await agent.text("ask_twice"), '["first","second"]');
    const names = ["a", "b", "c", "d"];
    const answers = await Promise.all(names.map((message) => agent.text("ask", { message })));
    assert.deepEqual(answers, names.map((name) => `hello ${name}`));
    assert.equal(await agent.text("progress"), "done");
    // Its own wake: state and props are there.
    await evict();
    assert.equal(await agent.text("increment", { by: 1 }), "2.5");
    assert.deepEqual(await agent.self(), self);
    assert.equal(await agent.text("ask", { message: "again" }), "hello again");
    // The caller's.
    await agent.evict();
    assert.equal(await agent.text("increment", { by: 1 }), "3.5");
  };

  test("is used by the package's own client", async () => {
    const [, script] = await rpcBundles();
    const code = { build: undefined, script, flags: ["nodejs_compat"] };
    const worker = await start({ ...code, objects: rustCallerObjects, beside: rustServers });
    try {
      const evict = () => worker.evict("RustCounter", "rpc:my-rust-counter", rustServers.name);
      await serves(new Caller(worker, "npm"), evict, { isNpm: true });
    } finally {
      await worker.dispose();
    }
  });

  test("is used by ours, cancels what is given up, and says why it does not start", async () => {
    const worker = await start({ objects: { ...callerObjects, RUST: "RustCounter" } });
    try {
      const agent = new Caller(worker, "ours");
      const evict = () => worker.evict("RustCounter", "rpc:my-rust-counter");
      await serves(agent, evict, { isNpm: false });
      await agent.ask("told");
      await agent.text("progress");
      const told = (await agent.ask("told")).filter((entry) => entry.startsWith("progress"));
      assert.deepEqual(told, ["progress 1", "progress 2", "progress 3"]);
      const late = await agent.call("wait", {}, { timeout: 300 });
      assert.equal(late.code, "timeout");
      // The server has let go of it, so both may sleep.
      await Promise.all([agent.evict(), evict()]);
      const failing = { id: "failing", name: "Failing", binding: "RUST", props: { failing: true } };
      assert.match((await agent.ask("add", failing)).error, /on purpose, while starting/);
    } finally {
      await worker.dispose();
    }
  });
});

describe("an object that moves between the package and this one", () => {
  before(rpcBundles);

  const rows = async (storage, name) => {
    const statements = [["SELECT * FROM cf_agents_mcp_servers ORDER BY id"]];
    const stored = await withStorage(storage, { className: "RpcCaller", name, statements });
    return stored.rows[0].map((row) => ({ ...row, server_options: JSON.parse(row.server_options) }));
  };

  const traveller = async (name) => {
    const storage = await temporaryFolder();
    const run = async (options, work) => {
      const worker = await start({ storage, ...options });
      try {
        return await work(new Caller(worker, name));
      } finally {
        await worker.dispose();
      }
    };
    const [, script] = await rpcBundles();
    return {
      npm: (work) => run({ build: undefined, script, flags: ["nodejs_compat"] }, work),
      ours: (work) => run({}, work),
      rows: () => rows(storage, name),
    };
  };

  const works = async (agent, count) => {
    assert.equal(await agent.text("increment", { by: 1 }), String(count));
    assert.equal(await agent.text("ask", { message: "Ada" }), "hello Ada");
    const self = await agent.self();
    assert.deepEqual([self.name, self.props], ["rpc:my-counter", { user: "ada" }]);
  };

  test("finds its server, with its props and its state, in both directions", async () => {
    for (const [first, second] of [["npm", "ours"], ["ours", "npm"]]) {
      const object = await traveller("traveller");
      await object[first](async (agent) => {
        await agent.add("My Counter", { props: { user: "ada" } });
        await works(agent, 1);
      });
      const [before] = await object.rows();
      assert.deepEqual(
        [before.id, before.name, before.server_url, before.callback_url, before.client_id, before.auth_url],
        ["counter", "My Counter", "rpc:my-counter", "", null, null],
      );
      const { bindingName, props, transport } = before.server_options;
      assert.deepEqual([bindingName, props, transport], ["COUNTER", { user: "ada" }, undefined], first);
      let count = 1;
      for (const side of [second, first, second]) {
        await object[side](async (agent) => works(agent, (count += 1)));
        const [after] = await object.rows();
        const { bindingName, props } = after.server_options;
        assert.deepEqual([bindingName, props], ["COUNTER", { user: "ada" }], `${first}, ${side}`);
      }
    }
  });
});
