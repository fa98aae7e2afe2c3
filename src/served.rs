//! How an object that serves MCP is called: what [`serve_rpc!`](crate::serve_rpc) writes calls this.

use wasm_bindgen::JsValue;
use worker::js_sys::{self, JSON};

use crate::lifecycle::{Lifecycle, LifecycleObject, Status};
use crate::runtime::{self, KeyValue};
use crate::serving::{RpcServer, ServeMcp};

/// Where the TypeScript package keeps what an object was started with.
const PROPS: &str = "props";

impl<S: ServeMcp + 'static> RpcServer<S> {
    /// A server for a Durable Object: put it into a field, and name that to
    /// [`serve_rpc!`](crate::serve_rpc).
    pub fn new(server: S) -> Self {
        Self::on_ports(server, runtime::clock(), runtime::spawn())
    }
}

/// Starts the object. Props are kept for its later wakes.
///
/// # Errors
/// What starting fails with, as an exception.
#[doc(hidden)]
pub async fn start<O: LifecycleObject>(object: &O, props: JsValue) -> Result<(), JsValue> {
    let lifecycle = object.lifecycle();
    let storage = KeyValue::of(&lifecycle.storage());
    let props = if props.is_object() {
        storage.put(PROPS, &props).map_err(exception)?;
        props
    } else if lifecycle.status() == Status::Started {
        return Ok(());
    } else {
        storage.get(PROPS).map_err(exception)?
    };
    start_with(lifecycle, object, &props).await
}

async fn start_with<O: LifecycleObject>(
    lifecycle: &Lifecycle,
    object: &O,
    props: &JsValue,
) -> Result<(), JsValue> {
    let started = if props.is_object() {
        let props = String::from(JSON::stringify(props)?);
        let props: serde_json::Value = serde_json::from_str(&props).map_err(exception)?;
        lifecycle.start_with_props(object, &props).await
    } else {
        lifecycle.start(object).await
    };
    started.map_err(|error| exception(error.describe()))
}

/// Handles one call.
///
/// # Errors
/// What it throws.
#[doc(hidden)]
pub async fn handle<O: LifecycleObject, S: ServeMcp + 'static>(
    object: &O,
    server: &RpcServer<S>,
    message: JsValue,
) -> Result<JsValue, JsValue> {
    start(object, JsValue::UNDEFINED).await?;
    // What is no JSON is no message.
    let message = JSON::stringify(&message).ok();
    let message = message.and_then(|text| text.as_string());
    let returned = server.handle(message.as_deref().unwrap_or("null")).await;
    match returned.map_err(exception)? {
        Some(text) => JSON::parse(&text),
        None => Ok(JsValue::UNDEFINED),
    }
}

fn exception(error: impl std::fmt::Display) -> JsValue {
    js_sys::Error::new(&error.to_string()).into()
}

/// Lets a Durable Object serve MCP over its binding: `serve_rpc!(MyServer, rpc)`, where `rpc` is the
/// field with its [`RpcServer`](crate::serving::RpcServer).
///
/// Writes the two methods that an `McpAgent` of the npm package `agents` has for it. The crate that
/// uses the macro depends on `worker`.
#[macro_export]
macro_rules! serve_rpc {
    ($object:ident, $server:ident) => {
        const _: () = {
            use ::worker::wasm_bindgen::prelude::{JsValue, wasm_bindgen};
            use ::worker::{
                js_sys as js, wasm_bindgen as bindgen, wasm_bindgen_futures as futures,
            };

            // What the macro writes names these crates, and not everybody depends on them.
            #[wasm_bindgen(wasm_bindgen = bindgen, js_sys = js, wasm_bindgen_futures = futures)]
            impl $object {
                #[doc(hidden)]
                #[wasm_bindgen(js_name = "__unsafe_ensureInitialized")]
                pub async fn __ensure_initialized(
                    &self,
                    props: JsValue,
                ) -> ::core::result::Result<(), JsValue> {
                    $crate::served::start(self, props).await
                }

                #[doc(hidden)]
                #[wasm_bindgen(js_name = "handleMcpMessage")]
                pub async fn __handle_mcp_message(
                    &self,
                    message: JsValue,
                ) -> ::core::result::Result<JsValue, JsValue> {
                    $crate::served::handle(self, &self.$server, message).await
                }
            }
        };
    };
}
