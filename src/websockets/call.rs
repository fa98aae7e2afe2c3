//! A call of a browser: a frame `rpc`.

use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Connection;
use super::frames::{self, CallFrame};
use crate::Error;

/// What [`Hooks::on_call`](crate::Hooks::on_call) returns: [`Call::reply`] makes one.
pub type CallResult = Result<Box<RawValue>, CallError>;

/// A method that a browser calls, by `agent.call(method, args)` of the npm clients.
///
/// ```
/// use workers_agents::{Call, CallResult};
///
/// async fn on_call(call: &Call) -> CallResult {
///     match call.method() {
///         "add" => {
///             let (a, b): (i64, i64) = call.args()?;
///             call.reply(&(a + b))
///         }
///         "count" => {
///             let (n,): (u32,) = call.args()?;
///             for i in 0..n {
///                 call.send(&i)?;
///             }
///             call.reply(&n)
///         }
///         _ => call.unknown(),
///     }
/// }
/// ```
///
/// Cheap to clone.
#[derive(Clone)]
pub struct Call {
    inner: Rc<Inner>,
}

struct Inner {
    connection: Connection,
    id: Box<RawValue>,
    method: String,
    args: String,
}

/// Why a call has failed. The text is sent to the browser, up to 500 characters of it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is no such method.
    #[error("Method {0} does not exist")]
    UnknownMethod(String),
    /// The arguments are not those that the method takes.
    #[error("invalid arguments: {0}")]
    InvalidArguments(String),
    /// The method has failed.
    #[error("{0}")]
    Failed(String),
}

impl Call {
    pub(crate) fn new(connection: Connection, frame: CallFrame<'_>) -> Self {
        let inner = Inner {
            connection,
            id: frame.id,
            method: frame.method,
            args: frame.args.to_owned(),
        };
        Self {
            inner: Rc::new(inner),
        }
    }

    /// Whose call it is.
    pub fn connection(&self) -> &Connection {
        &self.inner.connection
    }

    /// The name of the method.
    pub fn method(&self) -> &str {
        &self.inner.method
    }

    /// The arguments: a tuple, such as `(String, u32)` or `(Options,)`, or a `Vec`. A tuple needs
    /// exactly as many.
    ///
    /// # Errors
    /// [`CallError::InvalidArguments`].
    pub fn args<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_str(&self.inner.args)
            .map_err(|error| CallError::InvalidArguments(error.to_string()))
    }

    /// Sends a part of a streamed answer; what the method returns is the end of it.
    ///
    /// # Errors
    /// [`CallError::Failed`] when it is no JSON, or nobody is there any more.
    pub fn send(&self, part: &impl Serialize) -> Result<(), CallError> {
        if !self.inner.connection.is_open() {
            return Err(CallError::Failed("the connection is closed".into()));
        }
        let part = to_raw(part)?;
        self.inner
            .connection
            .send(&frames::result(&self.inner.id, &part, false));
        Ok(())
    }

    /// The answer.
    ///
    /// # Errors
    /// [`CallError::Failed`] when it is no JSON.
    pub fn reply(&self, answer: &impl Serialize) -> CallResult {
        to_raw(answer)
    }

    /// There is no such method.
    ///
    /// # Errors
    /// [`CallError::UnknownMethod`], always.
    pub fn unknown(&self) -> CallResult {
        Err(CallError::UnknownMethod(self.inner.method.clone()))
    }

    pub(crate) fn answer(&self, outcome: &CallResult) {
        let frame = match outcome {
            Ok(answer) => frames::result(&self.inner.id, answer, true),
            Err(error) => frames::failure(Some(&self.inner.id), &error.to_string()),
        };
        self.inner.connection.send(&frame);
    }
}

/// The largest answer, or part of one, in bytes: the platform takes frames of 32 MiB, and closes the
/// socket at a larger one.
const MAX_ANSWER: usize = (32 << 20) - (1 << 10);

fn to_raw(value: &impl Serialize) -> CallResult {
    let raw = serde_json::value::to_raw_value(value)
        .map_err(|error| CallError::Failed(format!("not JSON: {error}")))?;
    if raw.get().len() > MAX_ANSWER {
        let error = format!("the answer is larger than {MAX_ANSWER} bytes");
        return Err(CallError::Failed(error));
    }
    Ok(raw)
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Failed(error.describe())
    }
}

impl From<worker::Error> for CallError {
    fn from(error: worker::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Arguments may be secrets.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("connection", &self.inner.connection)
            .field("method", &self.inner.method)
            .finish_non_exhaustive()
    }
}
