//! What a server offers: its lists, loaded page by page.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join4;
use serde_json::value::RawValue;

use super::McpClientOptions;
use super::call::CallOptions;
use super::client::{Client, How};
use super::tools::{DroppedTool, ToolIndex, screen};
use super::within::within;
use crate::ports::Clock;
use crate::protocol::bounded::{self, member_text};
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
    /// What kept a list from being loaded; the list then is what it was before. And why tools were
    /// left out.
    pub(crate) problems: Vec<ListProblem>,
    /// The tools by name.
    pub(crate) index: Rc<ToolIndex>,
}

/// A list of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListKind {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list` and `resources/templates/list`
    Resources,
}

impl ListKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// The name of the capability.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }
}

/// A list that could not be loaded, or an item that was left out of it.
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
    list: ListKind,
}

const TOOLS: Kind = Kind {
    method: "tools/list",
    member: "tools",
    key: "name",
    capability: "tools",
    list: ListKind::Tools,
};
const PROMPTS: Kind = Kind {
    method: "prompts/list",
    member: "prompts",
    key: "name",
    capability: "prompts",
    list: ListKind::Prompts,
};
const RESOURCES: Kind = Kind {
    method: "resources/list",
    member: "resources",
    key: "uri",
    capability: "resources",
    list: ListKind::Resources,
};
const TEMPLATES: Kind = Kind {
    method: "resources/templates/list",
    member: "resourceTemplates",
    key: "uriTemplate",
    capability: "resources",
    list: ListKind::Resources,
};

impl Catalog {
    /// Loads the given kinds of lists, as far as the server's capabilities promise them, all at
    /// once, each for at most the loader's limit.
    ///
    /// A list that fails keeps what `previous` had and is named in `problems`, so that a broken
    /// prompts list does not hide the tools. A list whose capability is gone becomes empty. Kinds
    /// that were not asked for stay as they are.
    ///
    /// # Errors
    /// The first failure, when every list failed.
    pub(crate) async fn load(
        loader: &Loader<'_>,
        card: &ServerCard,
        previous: &Self,
        kinds: &[ListKind],
    ) -> Result<Self> {
        // Boxed: four of them side by side make a large future.
        let list = |kind: Kind| {
            let items = async move {
                let items = within(loader.clock, loader.limit, kind.method, loader.items(kind));
                if !kinds.contains(&kind.list) {
                    Loaded::Kept
                } else if card.offers(kind.capability) {
                    Loaded::Done(items.await)
                } else {
                    Loaded::NotOffered
                }
            };
            items.boxed_local()
        };
        let (tools, prompts, resources, templates) =
            join4(list(TOOLS), list(PROMPTS), list(RESOURCES), list(TEMPLATES)).await;

        let mut merge = Merge::default();
        let were_kept = matches!(tools, Loaded::Kept);
        let tools = merge.list(
            TOOLS,
            tools,
            Tool::from_json,
            Tool::name,
            previous,
            |from| &from.tools,
        );
        let (tools, index) = if were_kept || Rc::ptr_eq(&tools, &previous.tools) {
            (tools, previous.index.clone())
        } else {
            let (tools, dropped) = screen(&tools, loader.mirrors_arguments());
            merge.problems.extend(left_out(&dropped));
            (tools, Rc::new(ToolIndex::new(dropped)))
        };
        let catalog = Self {
            tools,
            index,
            prompts: merge.list(
                PROMPTS,
                prompts,
                Prompt::from_json,
                Prompt::name,
                previous,
                |from| &from.prompts,
            ),
            resources: merge.list(
                RESOURCES,
                resources,
                Resource::from_json,
                Resource::uri,
                previous,
                |from| &from.resources,
            ),
            templates: merge.list(
                TEMPLATES,
                templates,
                ResourceTemplate::from_json,
                ResourceTemplate::uri_template,
                previous,
                |from| &from.templates,
            ),
            problems: merge.problems,
        };
        match merge.first_error {
            // Authorization concerns the whole server, whichever list met the demand for it.
            Some(error) if !merge.any_loaded || error.is_unauthorized() => Err(error),
            _ => Ok(catalog),
        }
    }

    /// Takes the lists that are not among those loaded from another catalogue.
    pub(crate) fn keep_others(&mut self, other: &Self, loaded: &[ListKind]) {
        if ListKind::ALL.iter().all(|kind| loaded.contains(kind)) {
            return;
        }
        if !loaded.contains(&ListKind::Tools) {
            self.tools = other.tools.clone();
            self.index = other.index.clone();
        }
        if !loaded.contains(&ListKind::Prompts) {
            self.prompts = other.prompts.clone();
        }
        if !loaded.contains(&ListKind::Resources) {
            self.resources = other.resources.clone();
            self.templates = other.templates.clone();
        }
        let kind_of = |problem: &ListProblem| {
            let kinds = [TOOLS, PROMPTS, RESOURCES, TEMPLATES];
            let kind = kinds.into_iter().find(|kind| kind.method == problem.method);
            kind.is_some_and(|kind| loaded.contains(&kind.list))
        };
        self.problems.retain(kind_of);
        let others = other.problems.iter().filter(|problem| !kind_of(problem));
        self.problems.extend(others.cloned());
    }

    /// Whether every list could be loaded to its end.
    pub(crate) fn is_complete(&self) -> bool {
        let is_left_out =
            |problem: &ListProblem| matches!(problem.error, Error::UnusableTool { .. });
        self.problems.iter().all(is_left_out)
    }

    /// Whether both leave out the same tools.
    pub(crate) fn drops_the_same(&self, other: &Self) -> bool {
        let names = |catalog: &Self| {
            let dropped = catalog.index.dropped().iter();
            dropped.map(|tool| tool.name.clone()).collect::<Vec<_>>()
        };
        names(self) == names(other)
    }

    /// Whether both list the same, text by text.
    pub(crate) fn lists_the_same(&self, other: &Self, kind: ListKind) -> bool {
        fn same<T>(one: &[T], other: &[T], text: fn(&T) -> &str) -> bool {
            one.iter().map(text).eq(other.iter().map(text))
        }
        match kind {
            ListKind::Tools => same(&self.tools, &other.tools, Tool::text),
            ListKind::Prompts => same(&self.prompts, &other.prompts, Prompt::text),
            ListKind::Resources => {
                same(&self.resources, &other.resources, Resource::text)
                    && same(&self.templates, &other.templates, ResourceTemplate::text)
            }
        }
    }
}

/// What became of one list.
enum Loaded {
    /// Not asked for.
    Kept,
    /// The server does not offer it.
    NotOffered,
    Done(Result<Items>),
}

/// Puts freshly loaded lists over those from before, and keeps account of what failed.
#[derive(Default)]
struct Merge {
    any_loaded: bool,
    first_error: Option<Error>,
    problems: Vec<ListProblem>,
}

impl Merge {
    /// The items of a list, each name once; what is no item of the kind is left out.
    fn list<T: Clone>(
        &mut self,
        kind: Kind,
        outcome: Loaded,
        parse: fn(Box<RawValue>) -> Option<T>,
        key: fn(&T) -> &str,
        previous: &Catalog,
        part: fn(&Catalog) -> &Rc<[T]>,
    ) -> Rc<[T]> {
        let list = match outcome {
            Loaded::Kept => {
                let problems = previous.problems.iter();
                let own = problems.filter(|problem| problem.method == kind.method);
                self.problems.extend(own.cloned());
                return part(previous).clone();
            }
            Loaded::NotOffered => return Rc::default(),
            Loaded::Done(Ok(Items { list, incomplete })) => {
                let problem = incomplete.map(|error| ListProblem {
                    method: kind.method,
                    error,
                });
                self.problems.extend(problem);
                list
            }
            // Declared, and then not implemented: common, and no more than an empty list.
            Loaded::Done(Err(Error::Rpc(RpcError {
                code: RpcError::METHOD_NOT_FOUND,
                ..
            }))) => Vec::new(),
            Loaded::Done(Err(error)) => {
                self.problems.push(ListProblem {
                    method: kind.method,
                    error: error.clone(),
                });
                if error.is_unauthorized() {
                    self.first_error = Some(error);
                } else {
                    self.first_error.get_or_insert(error);
                }
                return part(previous).clone();
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

/// What is said of tools that were left out.
pub(super) fn left_out(dropped: &[DroppedTool]) -> Vec<ListProblem> {
    let problem = |tool: &DroppedTool| ListProblem {
        method: TOOLS.method,
        error: Error::UnusableTool {
            name: tool.name.clone(),
            reason: tool.reason.clone(),
        },
    };
    dropped.iter().take(MAX_LEFT_OUT).map(problem).collect()
}

/// How many tools that were left out are named.
const MAX_LEFT_OUT: usize = 20;

/// What loading takes.
pub(crate) struct Loader<'a> {
    pub(crate) client: &'a Rc<Client>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) options: &'a McpClientOptions,
    /// How long one list may take.
    pub(crate) limit: Duration,
    /// Whether nobody asked for it.
    pub(crate) in_background: bool,
}

/// The items of a list over all its pages.
struct Items {
    list: Vec<Box<RawValue>>,
    /// Why there may be more.
    incomplete: Option<Error>,
}

impl Loader<'_> {
    /// Whether annotations of arguments count: they are of the modern era (2026-07-28, tools).
    fn mirrors_arguments(&self) -> bool {
        self.client
            .session()
            .is_some_and(|session| session.is_modern())
    }

    /// Walks the pages of one list.
    ///
    /// The cursor is opaque, and the empty string is one (2026-07-28, pagination); only an absent
    /// or `null` cursor ends the list. A page that brings nothing new, and has items or the cursor
    /// that was asked for, ends it too: the server is going in circles. What was loaded until
    /// then, or until a limit, is kept, and the problem is reported.
    async fn items(&self, kind: Kind) -> Result<Items> {
        let (method, options) = (kind.method, self.options);
        let mut list: Vec<Box<RawValue>> = Vec::new();
        let mut seen: HashSet<u64> = HashSet::new();
        let mut bytes = 0;
        let mut cursor: Option<String> = None;
        let how = CallOptions::default();
        for _ in 0..options.max_list_pages {
            let mut call = Call::new(method);
            if let Some(cursor) = &cursor {
                let params = Params::default().with("cursor", cursor);
                call.params = params.map_err(|error| Error::InvalidOption(error.to_string()))?;
            }
            let result = {
                let mut how = How::from(&how);
                how.in_background = self.in_background;
                self.client.request(&call, how).await?
            };
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
            if page.next_cursor.is_none() {
                return Ok(Items {
                    list,
                    incomplete: None,
                });
            }
            if in_circles {
                return incomplete(list, ProtocolError::CircularList { method });
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
    member_text(item, kind.key)
        .unwrap_or_else(|| item.get())
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
        let items = member_text(result, kind.member)
            .ok_or_else(|| malformed(format!("\"{}\" is missing", kind.member)))?;
        let (items, has_more) = bounded::list(items.as_bytes(), max_items)
            .map_err(|error| malformed(without_content(&error)))?;
        let next_cursor = member_text(result, "nextCursor").map(serde_json::from_str);
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
