//! Objects behind bindings, over JavaScript RPC.

use std::rc::Rc;

use async_trait::async_trait;
use js_sys::Reflect;
use wasm_bindgen::prelude::*;
use worker::Env;

use crate::ports::{ObjectAddress, ObjectError, Objects, RemoteObject};

/// The longest text of an error, in characters.
const MAX_TEXT: usize = 500;

/// The objects that an object can reach.
pub(super) struct Bindings {
    env: Env,
    caller: String,
}

impl Bindings {
    /// `caller` is the id of the object that calls.
    pub(super) fn new(env: &Env, caller: String) -> Self {
        Self {
            env: env.clone(),
            caller,
        }
    }
}

#[async_trait(?Send)]
impl Objects for Bindings {
    fn caller(&self) -> String {
        self.caller.clone()
    }

    async fn connect(&self, to: &ObjectAddress) -> Result<Rc<dyn RemoteObject>, ObjectError> {
        let object =
            stub(self.env.as_ref(), &to.binding, &to.name).map_err(|error| thrown(&error))?;
        if object.is_undefined() {
            return Err(ObjectError::NoBinding(cut(&to.binding)));
        }
        start(&object, to.props.as_deref())
            .await
            .map_err(|error| thrown(&error))?;
        Ok(Rc::new(Stub(object)))
    }
}

struct Stub(JsValue);

#[async_trait(?Send)]
impl RemoteObject for Stub {
    async fn call(&self, message: &str, max_bytes: usize) -> Result<Option<String>, ObjectError> {
        let returned = call(&self.0, message, max_bytes)
            .await
            .map_err(|error| thrown(&error))?;
        if returned.as_f64().is_some() {
            return Err(ObjectError::TooLarge(max_bytes));
        }
        // Letters may take more bytes here than they took there.
        match returned.as_string() {
            Some(text) if text.len() > max_bytes => Err(ObjectError::TooLarge(max_bytes)),
            text => Ok(text),
        }
    }
}

/// What an exception says. The platform marks its own ("Error handling" of Durable Objects).
fn thrown(error: &JsValue) -> ObjectError {
    let is = |flag: &str| member(error, flag).is_some_and(|value| value.is_truthy());
    let text = member(error, "message").and_then(|message| message.as_string());
    let text = cut(&text.or_else(|| error.as_string()).unwrap_or_default());
    if is("notJson") {
        ObjectError::NotJson(text)
    } else if is("overloaded") {
        ObjectError::Overloaded(text)
    } else if is("retryable") || is("durableObjectReset") {
        ObjectError::Unreachable {
            text,
            is_retryable: is("retryable"),
        }
    } else if text.contains("does not implement the method") {
        ObjectError::NoServer(text)
    } else if !is("remote") && text.contains("Network connection lost") {
        ObjectError::Unreachable {
            text,
            is_retryable: false,
        }
    } else {
        ObjectError::Threw(text)
    }
}

fn member(error: &JsValue, name: &str) -> Option<JsValue> {
    if !error.is_object() {
        return None;
    }
    Reflect::get(error, &JsValue::from_str(name)).ok()
}

/// On one line, and not longer than anybody wants to read.
fn cut(text: &str) -> String {
    let text = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter });
    text.take(MAX_TEXT).collect()
}

#[wasm_bindgen(module = "/src/runtime/rpc.js")]
extern "C" {
    #[wasm_bindgen(catch)]
    fn stub(env: &JsValue, binding: &str, name: &str) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(catch)]
    async fn start(object: &JsValue, props: Option<&str>) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(catch)]
    async fn call(object: &JsValue, message: &str, most: usize) -> Result<JsValue, JsValue>;
}
