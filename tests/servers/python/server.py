"""The library of tests/servers/README.md on the Python SDK, whichever generation is installed: server.py [PORT].

Streamable HTTP is at /mcp and HTTP with SSE at /sse. It ends when its standard input closes.
"""

import asyncio
import os
import socket
import sys
import threading
from typing import Annotated

import uvicorn
from mcp.server.lowlevel import NotificationOptions
from pydantic import BaseModel, Field

try:  # the second generation: 2026-07-28, and the revisions before it
    from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:  # the first one, up to 2025-11-25
    from mcp.server.fastmcp import Context, FastMCP as MCPServer
    from mcp.server.fastmcp.exceptions import ToolError

    Resolve = None

library = MCPServer("library", instructions="Ask for a book by its title.")


class Sum(BaseModel):
    sum: float


class Days(BaseModel):
    days: int = Field(ge=1, le=28)


@library.tool()
def echo(message: str) -> str:
    """Says it again"""
    return message


@library.tool()
def add(a: float, b: float) -> Sum:
    """Adds two numbers"""
    return Sum(sum=a + b)


@library.tool()
def fail() -> None:
    """Reports an error"""
    raise ToolError("no such book")


@library.tool()
async def count(steps: int, ctx: Context) -> str:
    """Counts slowly, with progress"""
    for step in range(1, steps + 1):
        await asyncio.sleep(0.03)
        await ctx.report_progress(step, steps, f"step {step}")
    return f"counted to {steps}"


def question(title: str) -> str:
    return f"For how many days do you want {title}?"


def reserved(title: str, answer: Days | None) -> str:
    return f"{title} is yours for {answer.days} days" if answer else f"{title} stays here"


if Resolve:

    def ask(title: str) -> Elicit[Days]:
        return Elicit(question(title), Days)

    @library.tool()
    def reserve(title: str, answer: Annotated[ElicitationResult[Days], Resolve(ask)]) -> str:
        """Reserves a book, and asks for how long"""
        return reserved(title, answer.data if isinstance(answer, AcceptedElicitation) else None)

else:

    @library.tool()
    async def reserve(title: str, ctx: Context) -> str:
        """Reserves a book, and asks for how long"""
        answer = await ctx.elicit(question(title), Days)
        return reserved(title, answer.data if answer.action == "accept" else None)


@library.tool()
async def learn(name: str, ctx: Context) -> str:
    """Adds a tool"""
    library.add_tool(lambda: f"{name} works", name=name, description="A learned tool")
    if hasattr(ctx, "notify_tools_changed"):
        await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return f"learned {name}"


@library.prompt()
def review(title: str) -> str:
    """Review a book"""
    return f"Review {title}"


@library.resource("book://index", mime_type="text/plain")
def index() -> str:
    return "Emma, Ulysses"


@library.resource("book://{title}", name="book")
def book(title: str) -> str:
    """One book"""
    return f"The text of {title}"


def announce_changes() -> None:
    """Neither generation lets a server of the simple kind say that its lists change, though they may."""
    lowlevel = getattr(library, "_mcp_server", None) or library._lowlevel_server
    create = lowlevel.create_initialization_options
    lowlevel.create_initialization_options = lambda: create(NotificationOptions(tools_changed=True))


def end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    announce_changes()
    app = library.streamable_http_app()
    app.router.routes.extend(library.sse_app().routes)

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    listener.listen(128)
    print(f"ready at http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    # Streams stay open for ever; they are no reason to stay.
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


main()
