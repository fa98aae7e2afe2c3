// The library of tests/servers/README.md on the official server package: the 2026-07-28 era, and no other.
import { createServer } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { toNodeHandler } from "@modelcontextprotocol/node";
import {
  InMemoryServerEventBus,
  McpServer,
  ResourceTemplate,
  acceptedContent,
  createMcpHandler,
  fromJsonSchema,
  inputRequired,
  inputResponse,
} from "@modelcontextprotocol/server";

const objectSchema = (properties, required = Object.keys(properties)) =>
  fromJsonSchema({ type: "object", properties, required, additionalProperties: false });

const text = (text) => ({ content: [{ type: "text", text }] });

// What all requests see, since each gets a server of its own.
const learned = new Set();
const bus = new InMemoryServerEventBus();

function library() {
  const server = new McpServer(
    { name: "library", version: "1.2.3" },
    { instructions: "Ask for a book by its title." },
  );

  server.registerTool(
    "echo",
    { description: "Says it again", inputSchema: objectSchema({ message: { type: "string" } }) },
    ({ message }) => text(message),
  );
  server.registerTool(
    "add",
    {
      title: "Add",
      description: "Adds two numbers",
      inputSchema: objectSchema({ a: { type: "number" }, b: { type: "number" } }),
      outputSchema: objectSchema({ sum: { type: "number" } }),
    },
    ({ a, b }) => ({ content: [{ type: "text", text: `${a + b}` }], structuredContent: { sum: a + b } }),
  );
  server.registerTool("fail", { description: "Reports an error" }, () => ({ ...text("no such book"), isError: true }));
  server.registerTool(
    "count",
    { description: "Counts slowly, with progress", inputSchema: objectSchema({ steps: { type: "integer" } }) },
    async ({ steps }, { mcpReq }) => {
      const { progressToken } = mcpReq._meta ?? {};
      for (let progress = 1; progress <= steps; progress++) {
        await pause(30);
        if (progressToken === undefined) continue;
        const params = { progressToken, progress, total: steps, message: `step ${progress}` };
        await mcpReq.notify({ method: "notifications/progress", params });
      }
      return text(`counted to ${steps}`);
    },
  );
  server.registerTool(
    "reserve",
    {
      description: "Reserves a book, and asks for how long",
      inputSchema: objectSchema({ title: { type: "string" } }),
    },
    ({ title }, { mcpReq }) => {
      if (inputResponse(mcpReq.inputResponses, "days").kind === "missing") {
        const days = { type: "integer", minimum: 1, maximum: 28 };
        const requestedSchema = { type: "object", properties: { days }, required: ["days"] };
        const message = `For how many days do you want ${title}?`;
        return inputRequired({ inputRequests: { days: inputRequired.elicit({ message, requestedSchema }) } });
      }
      const answer = acceptedContent(mcpReq.inputResponses, "days");
      return text(answer ? `${title} is yours for ${answer.days} days` : `${title} stays here`);
    },
  );
  server.registerTool(
    "learn",
    { description: "Adds a tool", inputSchema: objectSchema({ name: { type: "string" } }) },
    ({ name }) => {
      learned.add(name);
      bus.publish({ kind: "tools_list_changed" });
      return text(`learned ${name}`);
    },
  );
  for (const name of learned) {
    server.registerTool(name, { description: "A learned tool" }, () => text(`${name} works`));
  }

  server.registerPrompt(
    "review",
    { description: "Review a book", argsSchema: objectSchema({ title: { type: "string" } }) },
    ({ title }) => ({ messages: [{ role: "user", content: { type: "text", text: `Review ${title}` } }] }),
  );

  server.registerResource("index", "book://index", { mimeType: "text/plain" }, (uri) => ({
    contents: [{ uri: uri.href, mimeType: "text/plain", text: "Emma, Ulysses" }],
  }));
  server.registerResource(
    "book",
    new ResourceTemplate("book://{title}", { list: undefined }),
    { description: "One book" },
    (uri, { title }) => ({ contents: [{ uri: uri.href, text: `The text of ${title}` }] }),
  );
  return server;
}

const serve = (responseMode) => toNodeHandler(createMcpHandler(library, { legacy: "reject", responseMode, bus }));
const paths = { "/mcp": serve("json"), "/events": serve("sse") };

createServer((request, response) => {
  const handler = paths[request.url];
  if (handler) return handler(request, response);
  response.writeHead(404).end();
}).listen();
