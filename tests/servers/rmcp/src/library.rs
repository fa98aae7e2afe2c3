//! What the server offers.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::handler::server::router::prompt::PromptRouter;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::tool::{InputResponses, ToolCallContext};
use rmcp::handler::server::wrapper::{Json, Parameters};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequest,
    ElicitRequestParams, ElicitationSchema, Implementation, InputRequest, InputRequests,
    InputRequiredResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, PromptMessage, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, RequestMetaObject,
    Resource, ResourceContents, ResourceTemplate, Role, ServerCapabilities, ServerConfig,
    SubscriptionFilter, Tool,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler, prompt, prompt_handler, prompt_router, tool,
    tool_router,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

const STEP: Duration = Duration::from_millis(30);

/// What all sessions see: the names of the tools that `learn` has added.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    learned: Mutex<BTreeSet<String>>,
    changes: watch::Sender<()>,
}

impl Shelf {
    fn learn(&self, name: String) {
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        learned.insert(name);
        self.changes.send_replace(());
    }

    fn learned(&self) -> Vec<String> {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        learned.iter().cloned().collect()
    }
}

/// The revisions that an endpoint speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Era {
    Legacy,
    All,
}

#[derive(Clone, Debug)]
pub(crate) struct Library {
    shelf: Arc<Shelf>,
    era: Era,
    tools: ToolRouter<Self>,
    prompts: PromptRouter<Self>,
}

#[derive(Deserialize, JsonSchema)]
struct Echo {
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Addends {
    a: f64,
    b: f64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: f64,
}

#[derive(Deserialize, JsonSchema)]
struct Count {
    steps: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Title {
    title: String,
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

#[tool_router]
impl Library {
    pub(crate) fn new(shelf: Arc<Shelf>, era: Era) -> Self {
        Self {
            shelf,
            era,
            tools: Self::tool_router(),
            prompts: Self::prompt_router(),
        }
    }

    #[tool(description = "Says it again")]
    async fn echo(&self, Parameters(Echo { message }): Parameters<Echo>) -> String {
        message
    }

    #[tool(description = "Adds two numbers")]
    async fn add(&self, Parameters(Addends { a, b }): Parameters<Addends>) -> Json<Sum> {
        Json(Sum { sum: a + b })
    }

    #[tool(description = "Reports an error")]
    async fn fail(&self) -> Result<String, String> {
        Err("no such book".into())
    }

    #[tool(description = "Counts slowly, with progress")]
    async fn count(
        &self,
        Parameters(Count { steps }): Parameters<Count>,
        meta: RequestMetaObject,
        peer: Peer<RoleServer>,
    ) -> String {
        for step in 1..=steps {
            sleep(STEP).await;
            if let Some(token) = meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, step.into())
                    .with_total(steps.into())
                    .with_message(format!("step {step}"));
                // Whoever no longer listens need not hear of it.
                let _unheard = peer.notify_progress(progress).await;
            }
        }
        format!("counted to {steps}")
    }

    #[tool(description = "Reserves a book, and asks for how long")]
    async fn reserve(
        &self,
        Parameters(Title { title }): Parameters<Title>,
        InputResponses(answers): InputResponses,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let question = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: format!("For how many days do you want {title}?"),
            requested_schema: ElicitationSchema::builder()
                .required_integer("days", 1, 28)
                .build()
                .map_err(|error| ErrorData::internal_error(error, None))?,
        };
        let answer = if is_modern(&context) {
            let Some(mut answers) = answers else {
                let question = InputRequest::Elicitation(ElicitRequest::new(question));
                let questions = InputRequests::from_iter([("days".to_owned(), question)]);
                return Ok(InputRequiredResult::new(Some(questions), None).into());
            };
            answers.remove("days").unwrap_or_default()
        } else {
            let answer = context.peer.create_elicitation(question).await;
            let failed = |error: &dyn ToString| ErrorData::internal_error(error.to_string(), None);
            let answer = answer.map_err(|error| failed(&error))?;
            serde_json::to_value(answer).map_err(|error| failed(&error))?
        };
        let days = answer.pointer("/content/days").and_then(Value::as_u64);
        Ok(match days {
            Some(days) => text(format!("{title} is yours for {days} days")),
            None => text(format!("{title} stays here")),
        }
        .into())
    }

    #[tool(description = "Adds a tool")]
    async fn learn(
        &self,
        Parameters(Name { name }): Parameters<Name>,
        context: RequestContext<RoleServer>,
    ) -> String {
        self.shelf.learn(name.clone());
        if !is_modern(&context) {
            let _unheard = context.peer.notify_tool_list_changed().await;
        }
        format!("learned {name}")
    }
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

#[prompt_router]
impl Library {
    #[prompt(description = "Review a book")]
    async fn review(&self, Parameters(Title { title }): Parameters<Title>) -> Vec<PromptMessage> {
        vec![PromptMessage::new_text(
            Role::User,
            format!("Review {title}"),
        )]
    }
}

#[prompt_handler(router = self.prompts)]
impl ServerHandler for Library {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.era {
            Era::Legacy => Cow::Borrowed(&[ProtocolVersion::V_2025_11_25]),
            Era::All => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
        }
    }

    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_resources()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("library", "1.2.3"))
            .with_instructions("Ask for a book by its title.")
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let learned = self.shelf.learned().into_iter();
        let learned = learned.map(|name| {
            let schema = rmcp::model::object(json!({"type": "object"}));
            Tool::new(name, "A learned tool", schema)
        });
        let mut tools = self.tools.list_all();
        tools.extend(learned);
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if self
            .shelf
            .learned()
            .iter()
            .any(|name| *name == request.name)
        {
            return Ok(text(format!("{} works", request.name)).into());
        }
        let call = ToolCallContext::new(self, request, context);
        self.tools.call(call).await
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let index = Resource::new("book://index", "index").with_mime_type("text/plain");
        Ok(ListResourcesResult::with_all_items(vec![index]))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let book = ResourceTemplate::new("book://{title}", "book").with_description("One book");
        Ok(ListResourceTemplatesResult::with_all_items(vec![book]))
    }

    async fn read_resource(
        &self,
        ReadResourceRequestParams { uri, .. }: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = match uri.strip_prefix("book://") {
            Some("index") => "Emma, Ulysses".to_owned(),
            Some(title) => format!("The text of {title}"),
            None => return Err(ErrorData::resource_not_found("no such book", None)),
        };
        let contents = ResourceContents::text(text, uri).with_mime_type("text/plain");
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.shelf.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                _ = changes.changed() => {
                    let _unheard = context.sink().notify_tool_list_changed().await;
                }
            }
        }
    }
}
