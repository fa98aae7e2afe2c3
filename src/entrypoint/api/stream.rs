//! A call of a tool as an event stream: what it tells on the way, then its outcome.
//!
//! Events: `call` with the `id` that `DELETE calls/<id>` gives up, `progress`, and at the end one of
//! `result`, `task` and `problem`. A comment every other second keeps proxies from closing the stream,
//! and finds out that the client has hung up: then the call is given up as well.

use std::cell::RefCell;
use std::time::Duration;

use futures::channel::mpsc;
use futures::future::{Either, select};
use futures::{FutureExt as _, SinkExt as _, StreamExt as _};
use serde::Serialize;
use serde_json::json;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use worker::js_sys::Promise;
use worker::{Delay, Request, ResponseBody, ResponseBuilder};

use super::calls::RunningCall;
use super::tool_call::ToolCall;
use super::{Answer, Problem};
use crate::invocation;
use crate::mcp::{McpClientManager, Progress, Started};

/// How long nothing is written at most.
const BEAT: Duration = Duration::from_secs(2);
/// How many signs of progress wait to be read. More than that are left out.
const MAX_WAITING: usize = 64;

/// Whether the client wants a stream (RFC 9110 §12.5.1; weights are not looked at).
pub(super) fn is_wanted(request: &Request) -> worker::Result<bool> {
    let accept = request.headers().get("accept")?.unwrap_or_default();
    Ok(accept.split(',').any(|range| {
        let kind = range.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("text/event-stream")
    }))
}

/// Calls the tool, and answers with the stream at once.
pub(super) fn answer(mcp: &McpClientManager, call: ToolCall, running: RunningCall) -> Answer {
    let outlet = Outlet::new();
    let response = ResponseBuilder::new()
        .with_header("content-type", "text/event-stream")?
        .with_header("cache-control", "no-store, no-transform")?
        .body(ResponseBody::Stream(outlet.readable()));
    let (tell, told) = mpsc::channel(MAX_WAITING);
    let work = run(mcp.clone(), call, running, tell);
    // The stream outlives the event that began it, and belongs to its trace all the same.
    let trace = invocation::current();
    spawn_local(async move {
        let both = select(
            Box::pin(pump(&outlet, told)),
            match trace {
                Some(trace) => trace.scope(work).boxed_local(),
                None => work.boxed_local(),
            },
        );
        // When the client has hung up first, the work is dropped here, and the server is told.
        if let Either::Right(((), rest)) = both.await {
            rest.await;
        }
        outlet.close();
    });
    Ok(response)
}

/// Writes what is told, until it ends or nobody reads any more.
async fn pump(outlet: &Outlet, mut told: mpsc::Receiver<String>) {
    loop {
        let text = match select(told.next(), Delay::from(BEAT)).await {
            Either::Left((None, _)) => return,
            Either::Left((Some(text), _)) => text,
            Either::Right(_) => ":\n\n".to_owned(),
        };
        let written = JsFuture::from(outlet.write(&text)).await;
        if !written.is_ok_and(|is_read| is_read.is_truthy()) {
            return;
        }
    }
}

async fn run(
    mcp: McpClientManager,
    mut call: ToolCall,
    running: RunningCall,
    mut tell: mpsc::Sender<String>,
) {
    let RunningCall { id, .. } = &running;
    let _ = tell.send(event("call", &json!({ "id": id }))).await;
    let progress = RefCell::new(tell.clone());
    call.options = call.options.on_progress(move |made| {
        // Whoever does not keep up misses some.
        let _ = progress
            .borrow_mut()
            .try_send(event("progress", &Shown::of(made)));
    });
    let call = Box::pin(call.run(&mcp));
    let outcome = match select(call, &mut Box::pin(cancelled(running))).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(((), call)) => {
            // Before anything is said of it: the server is told by this.
            drop(call);
            Err(Problem::new(409, "cancelled", "the call was given up"))
        }
    };
    let last = match outcome {
        Ok(Started::Finished(result)) => event("result", &result),
        Ok(Started::Task(task)) => event("task", &task),
        Err(problem) => event("problem", &problem.into_body()),
    };
    let _ = tell.send(last).await;
}

/// Resolves when the call is given up.
async fn cancelled(mut running: RunningCall) {
    if (&mut running.cancelled).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    progress: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl<'a> Shown<'a> {
    fn of(progress: &'a Progress) -> Self {
        Self {
            progress: progress.progress,
            total: progress.total,
            message: progress.message.as_deref(),
        }
    }
}

/// One event. JSON as it is written here holds no line break.
fn event(name: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".into());
    // Except where a server's own text is passed on as it came.
    let data = if data.contains(['\r', '\n']) {
        data.replace(['\r', '\n'], " ")
    } else {
        data
    };
    format!("event: {name}\ndata: {data}\n\n")
}

#[wasm_bindgen(module = "/src/entrypoint/api/outlet.js")]
extern "C" {
    type Outlet;
    #[wasm_bindgen(constructor)]
    fn new() -> Outlet;
    #[wasm_bindgen(method, getter)]
    fn readable(this: &Outlet) -> worker::web_sys::ReadableStream;
    #[wasm_bindgen(method)]
    fn write(this: &Outlet, text: &str) -> Promise;
    #[wasm_bindgen(method)]
    fn close(this: &Outlet);
}
