// A small MCP server of the 2026-07-28 era on the official server package. It refuses every earlier revision.
import { createServer } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { McpServer, ResourceTemplate, createMcpHandler, fromJsonSchema } from "@modelcontextprotocol/server";

const objectSchema = (properties, required = Object.keys(properties)) =>
  fromJsonSchema({ type: "object", properties, required, additionalProperties: false });

function library() {
  const server = new McpServer(
    { name: "library", version: "1.2.3" },
    { instructions: "Ask for a book by its title." },
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
  server.registerTool("fail", { description: "Reports an error" }, () => ({
    content: [{ type: "text", text: "no such book" }],
    isError: true,
  }));

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

const serve = (responseMode) => toNodeHandler(createMcpHandler(library, { legacy: "reject", responseMode }));
const paths = { "/mcp": serve("json"), "/events": serve("sse") };

createServer((request, response) => {
  const handler = paths[request.url];
  if (handler) return handler(request, response);
  response.writeHead(404).end();
}).listen();
