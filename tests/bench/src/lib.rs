//! The Worker that benchmarks measure. It answers the benchmark's control API through the public
//! API of the crate alone: `/o/<object>/<verb>`.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wasm_bindgen::prelude::*;
use worker::{
    Context, Date, Env, Request, Response, Result, SqlStorageValue, State, durable_object, event,
};
use workers_agents::{
    ConnectionState, Hooks, Lifecycle, LifecycleObject, McpClientManager, McpClientOptions,
    ReconnectPolicy, RegisterServer, Revision, ServerFilter, TransportKind,
};

#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    let path = request.path();
    if path == "/healthz" {
        return Response::ok("ok");
    }
    let Some((object, _)) = path
        .strip_prefix("/o/")
        .and_then(|rest| rest.split_once('/'))
    else {
        return Response::error("not found", 404);
    };
    let namespace = env.durable_object("BENCH")?;
    let stub = namespace.id_from_name(object)?.get_stub()?;
    stub.fetch_with_request(request).await
}

/// The object under measurement.
#[durable_object(fetch)]
pub struct Bench {
    lifecycle: Lifecycle,
    mcp: McpClientManager,
    /// The platform's own state object, which alone can drop the object from memory.
    context: RefCell<JsValue>,
}

impl worker::DurableObject for Bench {
    fn new(state: State, env: Env) -> Self {
        let context = JsValue::from(state.as_raw());
        let bench = <Self as LifecycleObject>::new(Lifecycle::new(state, env));
        bench.context.replace(context);
        bench
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        self.lifecycle.fetch(self, request).await
    }
}

impl LifecycleObject for Bench {
    fn new(lifecycle: Lifecycle) -> Self {
        // What is stored answers; a server is asked when it is used.
        let options = McpClientOptions::default().reconnect(ReconnectPolicy::Lazy);
        let mcp = McpClientManager::with_options(&lifecycle, "bench", "1.0.0", options);
        Self {
            lifecycle,
            mcp,
            context: RefCell::default(),
        }
    }

    fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Calls {
    server_id: String,
    name: String,
    arguments: Box<RawValue>,
    #[serde(default = "one")]
    count: usize,
    #[serde(default = "one")]
    concurrency: usize,
    #[serde(default)]
    samples: bool,
}

const fn one() -> usize {
    1
}

impl Hooks for Bench {
    async fn on_request(&self, mut request: Request) -> Result<Response> {
        let path = request.path();
        let verb = path.rsplit('/').next().unwrap_or_default();
        let mcp = &self.mcp;
        // An absent body is an empty object.
        let mut body = request.text().await?;
        if body.is_empty() {
            body.push_str("{}");
        }
        if let "call" | "callOne" = verb {
            let call: Calls = serde_json::from_str(&body)?;
            if verb == "call" {
                return self.call(&call).boxed_local().await;
            }
            let result = mcp.call_tool(&call.server_id, &call.name, &call.arguments);
            return answer(&result.boxed_local().await?);
        }
        let body: Value = serde_json::from_str(&body)?;
        let iterations = body["iterations"].as_u64().unwrap_or_default();
        let mut count = 0;
        match verb {
            "ping" => {}
            "register" => count = self.register(&body).boxed_local().await?.len(),
            "connect" => {
                let ids = match body["ids"].as_array() {
                    Some(ids) => ids.iter().map(text).collect(),
                    None => self.ids()?,
                };
                return self.connect(&ids).boxed_local().await;
            }
            "add" => {
                let ids = self.register(&body).boxed_local().await?;
                return self.connect(&ids).boxed_local().await;
            }
            "wait" => {
                let timeout = body["timeout"].as_u64();
                mcp.wait_for_connections(timeout.map(Duration::from_millis))
                    .boxed_local()
                    .await;
                return self.summary(&[]);
            }
            "tools" => {
                let tools = mcp.list_tools(&ServerFilter::all());
                return answer(&Tools { tools });
            }
            "listTools" => {
                for _ in 0..iterations {
                    count = mcp.list_tools(&ServerFilter::all()).len();
                }
            }
            "aiTools" => {
                for _ in 0..iterations {
                    count = self.model_tools().len();
                }
            }
            "servers" => return self.servers(),
            "close" => mcp.close_all_connections().boxed_local().await?,
            "evict" => abort_soon(&self.context.borrow()),
            "storage" => return self.storage().boxed_local().await,
            _ => return Response::error("no such verb", 404),
        }
        answer(&json!({"count": count}))
    }
}

/// An answer of JSON.
fn answer(value: &impl Serialize) -> Result<Response> {
    let response = Response::ok(serde_json::to_string(value)?)?;
    response.headers().set("content-type", "application/json")?;
    Ok(response)
}

/// A text of a body; what is none counts as empty.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[derive(Serialize)]
struct Tools<T> {
    tools: T,
}

/// What a call of a language model takes. The schema is the server's text.
struct ModelTool {
    description: Option<String>,
    schema: Box<RawValue>,
}

impl Bench {
    fn ids(&self) -> Result<Vec<String>> {
        let servers = self.mcp.list_servers()?;
        Ok(servers
            .into_iter()
            .map(|server| server.id.to_string())
            .collect())
    }

    async fn register(&self, body: &Value) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        for server in body["servers"].as_array().into_iter().flatten() {
            let id = text(&server["id"]);
            let url = text(&server["url"]);
            // As the floor does, which knows the era of each server from its URL.
            let revision = if url.contains("proto=2026") {
                Revision::V2026_07_28
            } else {
                Revision::V2025_11_25
            };
            let server = RegisterServer::new(text(&server["name"]), url)
                .transport(TransportKind::StreamableHttp)
                .protocol_versions([revision]);
            self.mcp.register_server(id.as_str(), server).await?;
            ids.push(id);
        }
        Ok(ids)
    }

    async fn connect(&self, ids: &[String]) -> Result<Response> {
        let outcomes = join_all(ids.iter().map(async |id| {
            self.mcp.connect_to_server(id).await?;
            self.mcp.discover_if_connected(id, None).await
        }))
        .await;
        let errors: Vec<String> = outcomes
            .into_iter()
            .filter_map(|outcome| outcome.err().map(|error| error.describe()))
            .collect();
        self.summary(&errors)
    }

    fn summary(&self, errors: &[String]) -> Result<Response> {
        let (mut ready, mut failed, mut other) = (0, 0, 0);
        for (_, state) in self.mcp.states() {
            match state {
                ConnectionState::Ready => ready += 1,
                ConnectionState::Failed => failed += 1,
                _ => other += 1,
            }
        }
        // Counted one by one: after a wake this reads them from storage.
        let tools = self.mcp.list_tools(&ServerFilter::all()).len();
        let errors = errors.get(..3).unwrap_or(errors);
        answer(&json!({
            "ready": ready, "failed": failed, "other": other, "tools": tools, "errors": errors,
        }))
    }

    fn model_tools(&self) -> Vec<(String, ModelTool)> {
        let tools = self.mcp.list_tools(&ServerFilter::all());
        let tools = tools.into_iter().filter_map(|entry| {
            let tool = ModelTool {
                description: entry.item.description(),
                schema: entry.item.input_schema()?.to_owned(),
            };
            Some((
                format!("tool_{}_{}", entry.server_id, entry.item.name()),
                tool,
            ))
        });
        let mut set: Vec<_> = tools.collect();
        set.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        set.dedup_by(|(one, _), (other, _)| one == other);
        // What nobody reads, the compiler would not build.
        std::hint::black_box(set.iter().fold(0, |size, (_, tool)| {
            size + tool.schema.get().len() + tool.description.as_deref().map_or(0, str::len)
        }));
        set
    }

    async fn call(&self, calls: &Calls) -> Result<Response> {
        let next = Cell::new(0);
        let (errors, chars) = (Cell::new(0), Cell::new(0));
        let latencies = RefCell::new(Vec::new());
        let lane = async || -> Result<()> {
            while next.get() < calls.count {
                next.set(next.get() + 1);
                let begun = calls.samples.then(|| Date::now().as_millis());
                let result = self
                    .mcp
                    .call_tool(&calls.server_id, &calls.name, &calls.arguments)
                    .await?;
                if let Some(begun) = begun {
                    let took = Date::now().as_millis().saturating_sub(begun);
                    latencies.borrow_mut().push(took * 1000);
                }
                errors.set(errors.get() + usize::from(result.is_error()));
                chars.set(chars.get() + result.text().len());
            }
            Ok(())
        };
        let lanes = calls.concurrency.min(calls.count);
        for outcome in join_all((0..lanes).map(|_| lane())).await {
            outcome?;
        }
        let mut counts = json!({
            "count": calls.count, "errors": errors.get(), "chars": chars.get(),
        });
        if calls.samples {
            counts["lat"] = latencies.take().into();
        }
        answer(&counts)
    }

    fn servers(&self) -> Result<Response> {
        #[derive(Serialize)]
        struct Snapshot<T, P, R> {
            servers: Map<String, Value>,
            tools: T,
            prompts: P,
            resources: R,
        }
        let mut servers = Map::new();
        for server in self.mcp.list_servers()? {
            let live = self.mcp.connection(server.id.as_str());
            let state = live
                .as_ref()
                .map_or(ConnectionState::NotConnected, |live| live.state);
            let capabilities = live
                .and_then(|live| live.card)
                .map(|card| card.capabilities);
            let about = json!({
                "name": server.name, "server_url": server.url, "state": state, "capabilities": capabilities,
            });
            servers.insert(server.id.to_string(), about);
        }
        let all = ServerFilter::all();
        answer(&Snapshot {
            servers,
            tools: self.mcp.list_tools(&all),
            prompts: self.mcp.list_prompts(&all),
            resources: self.mcp.list_resources(&all),
        })
    }

    async fn storage(&self) -> Result<Response> {
        let storage = self.lifecycle.storage();
        let sql = storage.sql();
        // `raw` alone reports an error as one; the cursor's other readers throw through Wasm.
        let rows = sql.exec("SELECT total_changes()", None)?.raw();
        let rows = rows.collect::<Result<Vec<Vec<SqlStorageValue>>>>()?;
        let changes = match rows.first().and_then(|row| row.first()) {
            Some(SqlStorageValue::Integer(changes)) => Some(*changes),
            _ => None,
        };
        answer(&json!({
            "changes": changes, "bytes": sql.database_size(), "alarm": storage.get_alarm().await?,
        }))
    }
}

// Later, and from JavaScript: an object that is aborted while its Rust code runs takes the instance with it.
#[wasm_bindgen(
    inline_js = "export function abort_soon(ctx) { setTimeout(() => ctx.abort('evicted by the benchmark'), 0); }"
)]
extern "C" {
    fn abort_soon(ctx: &JsValue);
}
