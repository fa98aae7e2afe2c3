//! What a server offers: its lists, loaded page by page.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join4;
use serde_json::value::RawValue;

use super::McpClientOptions;
use super::client::Client;
use super::within::within;
use crate::ports::Clock;
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
    /// The member of an item that names it.
    key: &'static str,
    capability: &'static str,
}

const TOOLS: Kind = Kind {
    method: "tools/list",
    member: "tools",
    key: "name",
    capability: "tools",
};
const PROMPTS: Kind = Kind {
    method: "prompts/list",
    member: "prompts",
    key: "name",
    capability: "prompts",
};
const RESOURCES: Kind = Kind {
    method: "resources/list",
    member: "resources",
    key: "uri",
    capability: "resources",
};
const TEMPLATES: Kind = Kind {
    method: "resources/templates/list",
    member: "resourceTemplates",
    key: "uriTemplate",
    capability: "resources",
};

impl Catalog {
    /// Loads every list that the server's capabilities promise, all at once, each for at most
    /// `limit`.
    ///
    /// A list that fails keeps what `previous` had and is named in `problems`, so that a broken
    /// prompts list does not hide the tools. A list whose capability is gone becomes empty.
    ///
    /// # Errors
    /// The first failure, when every list failed.
    pub(crate) async fn load(
        loader: &Loader<'_>,
        card: &ServerCard,
        previous: &Self,
    ) -> Result<Self> {
        // Boxed: four of them side by side make a large future.
        let list = |kind: Kind| {
            let items = async move {
                let items = within(loader.clock, loader.limit, kind.method, loader.items(kind));
                if card.offers(kind.capability) {
                    Some(items.await)
                } else {
                    None
                }
            };
            items.boxed_local()
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
        outcome: Option<Result<Items>>,
        parse: fn(Box<RawValue>) -> Option<T>,
        key: fn(&T) -> &str,
        previous: &Rc<[T]>,
    ) -> Rc<[T]> {
        let list = match outcome {
            None => return Rc::default(),
            Some(Ok(Items { list, incomplete })) => {
                let problem = incomplete.map(|error| ListProblem {
                    method: kind.method,
                    error,
                });
                self.problems.extend(problem);
                list
            }
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

/// What loading takes.
pub(crate) struct Loader<'a> {
    pub(crate) client: &'a Rc<Client>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) options: &'a McpClientOptions,
    /// How long one list may take.
    pub(crate) limit: Duration,
}

/// The items of a list over all its pages.
struct Items {
    list: Vec<Box<RawValue>>,
    /// Why there may be more.
    incomplete: Option<Error>,
}

impl Loader<'_> {
    /// Walks the pages of one list.
    ///
    /// The cursor is opaque, and the empty string is one (2026-07-28, pagination); only an absent
    /// or `null` cursor ends the list. A page that brings nothing new, and has items or the cursor
    /// that was asked for, ends it too: the server is going in circles. What was loaded until a
    /// limit is kept.
    async fn items(&self, kind: Kind) -> Result<Items> {
        let (method, options) = (kind.method, self.options);
        let mut list: Vec<Box<RawValue>> = Vec::new();
        let mut seen: HashSet<u64> = HashSet::new();
        let mut bytes = 0;
        let mut cursor: Option<String> = None;
        for _ in 0..options.max_list_pages {
            let mut call = Call::new(method);
            if let Some(cursor) = &cursor {
                let params = Params::default().with("cursor", cursor);
                call.params = params.map_err(|error| Error::InvalidOption(error.to_string()))?;
            }
            let result = self.client.request(&call).await?;
            bytes += result.get().len();
            if bytes > options.max_list_bytes {
                let limit = options.max_list_bytes;
                return incomplete(
                    list,
                    ProtocolError::ListTooLarge {
                        method,
                        bytes: limit,
                    },
                );
            }
            let page = match Page::read(&result, kind, options.max_list_items - list.len()) {
                Ok(page) => page,
                Err(error) => return incomplete(list, error),
            };
            if page.has_more {
                list.extend(page.items);
                let items = options.max_list_items;
                return incomplete(list, ProtocolError::ListTooLong { method, items });
            }
            let had_items = !page.items.is_empty();
            let fresh: Vec<_> = page
                .items
                .into_iter()
                .filter(|item| seen.insert(fingerprint(item, kind)))
                .collect();
            let in_circles = fresh.is_empty() && (had_items || page.next_cursor == cursor);
            list.extend(fresh);
            if page.next_cursor.is_none() || in_circles {
                return Ok(Items {
                    list,
                    incomplete: None,
                });
            }
            cursor = page.next_cursor;
        }
        incomplete(
            list,
            ProtocolError::EndlessList {
                method,
                pages: options.max_list_pages,
            },
        )
    }
}

/// A list that had to be cut is better than none; one that has nothing yet has failed.
fn incomplete(list: Vec<Box<RawValue>>, error: ProtocolError) -> Result<Items> {
    if list.is_empty() {
        return Err(error.into());
    }
    Ok(Items {
        list,
        incomplete: Some(error.into()),
    })
}

/// Tells items apart by what names them, or by their text where nothing does.
fn fingerprint(item: &RawValue, kind: Kind) -> u64 {
    let mut hasher = DefaultHasher::new();
    raw_member(item, kind.key)
        .unwrap_or(item)
        .get()
        .hash(&mut hasher);
    hasher.finish()
}

struct Page {
    items: Vec<Box<RawValue>>,
    /// More items than were asked for.
    has_more: bool,
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
        let (items, has_more) = bounded::list(items.get().as_bytes(), max_items)
            .map_err(|error| malformed(without_content(&error)))?;
        let next_cursor =
            raw_member(result, "nextCursor").map(|cursor| serde_json::from_str(cursor.get()));
        let next_cursor = next_cursor
            .transpose()
            .map_err(|_| malformed("\"nextCursor\" is not a string".into()))?;
        Ok(Self {
            items,
            has_more,
            next_cursor: next_cursor.flatten(),
        })
    }
}
