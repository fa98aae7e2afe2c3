//! The rest of the API: running calls, questions to the user, tasks, subscriptions, completion, logging.

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use worker::{Method, Request, ResponseBuilder};

use super::{Answer, Api, Problem, json_list, level_of, object, read, send};
use crate::mcp::{
    CallOptions, CompletionTarget, ElicitMode, ElicitResult, McpClientManager, Question, ServerId,
};
use percent_encoding::percent_decode_str;

/// A route.
pub(super) enum More {
    CancelCall(String),
    Questions,
    AnswerQuestion(String),
    Events,
    Tasks,
    Task(String, String),
    CancelTask(String, String),
    AwaitTask(String, String),
    Complete,
    Subscribe(bool),
    Ping(String),
    LogLevel(String),
}

impl More {
    /// The route of a request, if it is one of these.
    pub(super) fn route(method: &Method, rest: &[&str]) -> Option<Self> {
        let text = |text: &str| {
            percent_decode_str(text)
                .decode_utf8()
                .ok()
                .map(String::from)
        };
        Some(match (method, rest) {
            (Method::Delete, ["calls", id]) => Self::CancelCall(text(id)?),
            (Method::Get, ["elicitations"]) => Self::Questions,
            (Method::Post, ["elicitations", id]) => Self::AnswerQuestion(text(id)?),
            (Method::Get, ["events"]) => Self::Events,
            (Method::Get, ["tasks"]) => Self::Tasks,
            (Method::Get, ["tasks", server, id]) => Self::Task(text(server)?, text(id)?),
            (Method::Delete, ["tasks", server, id]) => Self::CancelTask(text(server)?, text(id)?),
            (Method::Post, ["tasks", server, id, "result"]) => {
                Self::AwaitTask(text(server)?, text(id)?)
            }
            (Method::Post, ["completion"]) => Self::Complete,
            (Method::Post, ["resources", "subscribe"]) => Self::Subscribe(true),
            (Method::Post, ["resources", "unsubscribe"]) => Self::Subscribe(false),
            (Method::Post, ["servers", server, "ping"]) => Self::Ping(text(server)?),
            (Method::Post, ["servers", server, "log-level"]) => Self::LogLevel(text(server)?),
            _ => return None,
        })
    }

    /// The methods of a path, if it is one of these.
    pub(super) fn allow(rest: &[&str]) -> Option<&'static str> {
        Some(match rest {
            ["elicitations" | "events" | "tasks"] => "GET, HEAD",
            ["elicitations", _]
            | ["tasks", _, _, "result"]
            | ["completion"]
            | ["resources", "subscribe" | "unsubscribe"]
            | ["servers", _, "ping" | "log-level"] => "POST",
            ["calls", _] => "DELETE",
            ["tasks", _, _] => "GET, HEAD, DELETE",
            _ => return None,
        })
    }

    pub(super) async fn run(self, api: Api<'_>, request: Request) -> Answer {
        let mcp = api.mcp;
        match self {
            Self::CancelCall(id) if api.calls.cancel(&id) => {
                Ok(ResponseBuilder::new().with_status(204).empty())
            }
            Self::CancelCall(_) => Err(Problem::new(
                404,
                "unknown-call",
                "no such call is under way",
            )),
            Self::Questions => {
                let open = api.questions.list();
                let open: Vec<_> = open
                    .iter()
                    .map(|question| Open::of(mcp, question))
                    .collect();
                // Not by way of a value: that would sort the members of the forms.
                send(200, &json_list("elicitations", &open)?)
            }
            Self::AnswerQuestion(id) => {
                let answer: ElicitResult = read(request).await?;
                api.questions.answer(&id, answer)?;
                send(200, &json!({ "id": id }))
            }
            Self::Events => {
                let events = api.events.list();
                let events = events.map_err(|error| crate::Error::Runtime(error.to_string()))?;
                send(200, &Events { events })
            }
            Self::Tasks => send(200, &json!({ "tasks": mcp.known_tasks()? })),
            Self::Task(server, id) => send(200, &mcp.task(&server, &id).await?),
            Self::CancelTask(server, id) => {
                mcp.cancel_task(&server, &id).await?;
                Ok(ResponseBuilder::new().with_status(204).empty())
            }
            Self::AwaitTask(server, id) => {
                let options = CallOptions::default();
                send(200, &mcp.await_task(&server, &id, &options).await?)
            }
            Self::Complete => {
                let Complete {
                    server_id,
                    target,
                    argument,
                    arguments,
                } = read(request).await?;
                let Argument { name, value } = argument;
                let chosen = object(arguments)?;
                let completion = mcp
                    .complete(&server_id, &target.into(), &name, &value, chosen)
                    .await?;
                send(200, &completion)
            }
            Self::Subscribe(on) => {
                let Resource { server_id, uri } = read(request).await?;
                if on {
                    mcp.subscribe_resource(&server_id, &uri).await?;
                } else {
                    mcp.unsubscribe_resource(&server_id, &uri).await?;
                }
                Ok(ResponseBuilder::new().with_status(204).empty())
            }
            Self::Ping(server) => {
                mcp.ping(&server).await?;
                Ok(ResponseBuilder::new().with_status(204).empty())
            }
            Self::LogLevel(server) => {
                let Level { level } = read(request).await?;
                mcp.set_log_level(&server, level_of(&level)?).await?;
                Ok(ResponseBuilder::new().with_status(204).empty())
            }
        }
    }
}

#[derive(Serialize)]
struct Events {
    events: Box<RawValue>,
}

/// An open question, as it is listed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Open {
    id: String,
    server_id: ServerId,
    server_name: Option<String>,
    mode: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_schema: Option<Box<RawValue>>,
    /// To be shown whole, and opened only when the user agrees. Never fetched here.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The host of the URL, in the form that cannot be mistaken for another.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    elicitation_id: Option<String>,
}

impl Open {
    fn of(mcp: &McpClientManager, question: &Question) -> Self {
        let server = mcp.server(question.server_id.as_str()).ok().flatten();
        let mut open = Self {
            id: question.id.clone(),
            server_id: question.server_id.clone(),
            server_name: server.map(|server| server.name),
            mode: "form",
            message: question.request.message.clone(),
            requested_schema: None,
            url: None,
            host: None,
            elicitation_id: None,
        };
        match &question.request.mode {
            ElicitMode::Form { requested_schema } => {
                open.requested_schema = Some((**requested_schema).to_owned());
            }
            ElicitMode::Url {
                url,
                elicitation_id,
            } => {
                open.mode = "url";
                open.url = Some(url.as_str().to_owned());
                open.host = Some(url.host().to_owned());
                open.elicitation_id.clone_from(elicitation_id);
            }
        }
        open
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Complete {
    server_id: String,
    #[serde(rename = "ref")]
    target: Target,
    argument: Argument,
    arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Target {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

impl From<Target> for CompletionTarget {
    fn from(target: Target) -> Self {
        match target {
            Target::Prompt { name } => Self::Prompt { name },
            Target::Resource { uri } => Self::Resource { uri },
        }
    }
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resource {
    server_id: String,
    uri: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Level {
    level: String,
}
