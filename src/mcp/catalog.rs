//! What a server offers: its lists, loaded page by page.

use std::collections::HashSet;
use std::rc::Rc;

use futures::future::join4;
use serde_json::value::RawValue;

use super::McpClientOptions;
use super::client::Client;
use crate::protocol::bounded::{self, raw_member};
use crate::protocol::jsonrpc::without_content;
use crate::protocol::model::ServerCard;
use crate::protocol::request::{Call, Params};
use crate::protocol::{Prompt, ProtocolError, Resource, ResourceTemplate, RpcError, Tool};
use crate::{Error, Result};

/// The lists of one server, as they were when last loaded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    pub(crate) tools: Rc<[Tool]>,
    pub(crate) prompts: Rc<[Prompt]>,
    pub(crate) resources: Rc<[Resource]>,
    pub(crate) templates: Rc<[ResourceTemplate]>,
    /// What kept a list from being loaded; the list then is what it was before.
    pub(crate) problems: Vec<ListProblem>,
}

/// A list that could not be loaded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListProblem {
    /// The method that lists, such as `prompts/list`.
    pub method: &'static str,
    /// Why it failed.
    pub error: Error,
}

/// One kind of item, and where it stands in the protocol.
#[derive(Debug, Clone, Copy)]
struct Kind {
    method: &'static str,
    member: &'static str,
    capability: &'static str,
}

const TOOLS: Kind = Kind {
    method: "tools/list",
    member: "tools",
    capability: "tools",
};
const PROMPTS: Kind = Kind {
    method: "prompts/list",
    member: "prompts",
    capability: "prompts",
};
const RESOURCES: Kind = Kind {
    method: "resources/list",
    member: "resources",
    capability: "resources",
};
const TEMPLATES: Kind = Kind {
    method: "resources/templates/list",
    member: "resourceTemplates",
    capability: "resources",
};

impl Catalog {
    /// Loads every list that the server's capabilities promise, all at once.
    ///
    /// A list that fails keeps what `previous` had and is named in `problems`, so that a broken
    /// prompts list does not hide the tools. A list whose capability is gone becomes empty.
    ///
    /// # Errors
    /// The first failure, when every list failed.
    pub(crate) async fn load(
        client: &Rc<Client>,
        options: &McpClientOptions,
        card: &ServerCard,
        previous: &Self,
    ) -> Result<Self> {
        let list = async |kind: Kind| {
            if card.offers(kind.capability) {
                Some(items(client, options, kind).await)
            } else {
                None
            }
        };
        let (tools, prompts, resources, templates) =
            join4(list(TOOLS), list(PROMPTS), list(RESOURCES), list(TEMPLATES)).await;

        let mut merge = Merge::default();
        let catalog = Self {
            tools: merge.list(TOOLS, tools, Tool::from_json, Tool::name, &previous.tools),
            prompts: merge.list(
                PROMPTS,
                prompts,
                Prompt::from_json,
                Prompt::name,
                &previous.prompts,
            ),
            resources: merge.list(
                RESOURCES,
                resources,
                Resource::from_json,
                Resource::uri,
                &previous.resources,
            ),
            templates: merge.list(
                TEMPLATES,
                templates,
                ResourceTemplate::from_json,
                ResourceTemplate::uri_template,
                &previous.templates,
            ),
            problems: merge.problems,
        };
        match merge.first_error {
            // Authorization concerns the whole server, whichever list met the demand for it.
            Some(error) if !merge.any_loaded || error.is_unauthorized() => Err(error),
            _ => Ok(catalog),
        }
    }
}

/// Puts freshly loaded lists over those from before, and keeps account of what failed.
#[derive(Default)]
struct Merge {
    any_loaded: bool,
    first_error: Option<Error>,
    problems: Vec<ListProblem>,
}

impl Merge {
    /// The items of a list, each name once; what is no item of the kind is left out. `None` is a
    /// list that the server does not offer.
    fn list<T: Clone>(
        &mut self,
        kind: Kind,
        outcome: Option<Result<Vec<Box<RawValue>>>>,
        parse: fn(Box<RawValue>) -> Option<T>,
        key: fn(&T) -> &str,
        previous: &Rc<[T]>,
    ) -> Rc<[T]> {
        let list = match outcome {
            None => return Rc::default(),
            Some(Ok(list)) => list,
            // Declared, and then not implemented: common, and no more than an empty list.
            Some(Err(Error::Rpc(RpcError {
                code: RpcError::METHOD_NOT_FOUND,
                ..
            }))) => Vec::new(),
            Some(Err(error)) => {
                self.problems.push(ListProblem {
                    method: kind.method,
                    error: error.clone(),
                });
                if error.is_unauthorized() {
                    self.first_error = Some(error);
                } else {
                    self.first_error.get_or_insert(error);
                }
                return previous.clone();
            }
        };
        self.any_loaded = true;
        let mut seen = HashSet::new();
        list.into_iter()
            .filter_map(parse)
            .filter(|item| seen.insert(key(item).to_owned()))
            .collect()
    }
}

/// Walks the pages of one list.
///
/// The cursor is opaque, and the empty string is one (2026-07-28, pagination); only an absent or
/// `null` cursor ends the list. A page that is not empty and brings nothing new ends it too: the
/// server is going in circles, whatever its cursors say.
async fn items(
    client: &Rc<Client>,
    options: &McpClientOptions,
    kind: Kind,
) -> Result<Vec<Box<RawValue>>> {
    let method = kind.method;
    let mut items: Vec<Box<RawValue>> = Vec::new();
    let mut seen: HashSet<u64> = HashSet::new();
    let mut bytes = 0;
    let mut cursor: Option<String> = None;
    for _ in 0..options.max_list_pages {
        let mut call = Call::new(method);
        if let Some(cursor) = &cursor {
            call.params = Params::default()
                .with("cursor", cursor)
                .map_err(|error| Error::InvalidOption(error.to_string()))?;
        }
        let result = client.request(&call).await?;
        let page = Page::read(&result, kind, options.max_list_items - items.len())?;
        bytes += result.get().len();
        if bytes > options.max_list_bytes {
            return Err(ProtocolError::ListTooLarge {
                method,
                bytes: options.max_list_bytes,
            }
            .into());
        }
        let page_len = page.items.len();
        let fresh: Vec<_> = page
            .items
            .into_iter()
            .filter(|item| seen.insert(fingerprint(item.get())))
            .collect();
        if page_len > 0 && fresh.is_empty() {
            return Ok(items);
        }
        items.extend(fresh);
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(items),
        }
    }
    Err(ProtocolError::EndlessList {
        method,
        pages: options.max_list_pages,
    }
    .into())
}

fn fingerprint(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

struct Page {
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

impl Page {
    fn read(result: &RawValue, kind: Kind, max_items: usize) -> Result<Self, ProtocolError> {
        let malformed = |reason: String| ProtocolError::MalformedResult {
            method: kind.method,
            reason,
        };
        let items = raw_member(result, kind.member)
            .ok_or_else(|| malformed(format!("\"{}\" is missing", kind.member)))?;
        let items = bounded::list(items.get().as_bytes(), max_items)
            .map_err(|error| malformed(without_content(&error)))?;
        let next_cursor =
            raw_member(result, "nextCursor").map(|cursor| serde_json::from_str(cursor.get()));
        let next_cursor = next_cursor
            .transpose()
            .map_err(|_| malformed("\"nextCursor\" is not a string".into()))?;
        Ok(Self {
            items,
            next_cursor: next_cursor.flatten(),
        })
    }
}
