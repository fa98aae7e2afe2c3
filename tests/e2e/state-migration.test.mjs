// An object changes from the npm package to ours and back, on the same storage, and its clients notice nothing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { freePort } from "./support/auth-agent.mjs";
import { startOurAgent, startPeerAgent } from "./support/client-agent.mjs";
import { npmClients, pictures, untilServer } from "./support/npm-client.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { until } from "./support/until.mjs";
import { temporaryFolder } from "./support/worker.mjs";

test("a client finds state and servers again when its agent moves from the npm package to ours and back", async (t) => {
  const remote = await startScriptedServer();
  t.after(() => remote.close());
  const place = { storage: await temporaryFolder(), port: await freePort() };
  let worker = await startPeerAgent(place);
  t.after(() => worker.dispose());
  const { connected, freshName, settled } = npmClients(worker);
  const client = await connected(t, { name: freshName() });
  const { id } = await client.call("connect", [remote.url, "Notes"]);

  for (const [move, start] of [startOurAgent, startPeerAgent, startOurAgent].entries()) {
    const state = { count: move + 1, "ключ": ["☃", null, 1.5, { deep: "\u0000" }] };
    client.setState(state);
    await settled(client);
    client.updates.length = client.frames.length = 0;
    await worker.dispose();
    await until("the client to notice", () => !client.identified);
    worker = await start(place);
    await client.ready;
    assert.deepEqual(client.updates, [["server", state]]);
    const { servers, tools } = await untilServer(client, "ready");
    assert.deepEqual(Object.keys(servers), [id]);
    assert.deepEqual(tools.map(({ name }) => name), ["echo"]);
    assert.equal(await client.call("add", [1, 2]), 3);
  }
  assert.equal(remote.count("initialize"), 1, "the session with the server goes along");
  await client.call("remove", [id]);
  await until("it to be gone", () => Object.keys(pictures(client).at(-1).servers).length === 0);
});
