//! Where the references of a schema lead: `$id`, anchors, JSON pointers. All within the document.

use std::borrow::Cow;
use std::collections::BTreeMap;

use url::Url;

use super::dialect::{Dialect, Holds};
use super::json::Json;
use super::{Uncheckable, shown};

/// A schema within the document, and the resource that it is part of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'j, 't> {
    pub(super) json: &'j Json<'t>,
    pub(super) resource: usize,
}

/// A schema with a URI of its own, and what belongs to it.
struct Resource<'j, 't> {
    base: Url,
    dialect: Dialect,
    root: &'j Json<'t>,
}

/// The resources of a document.
pub(super) struct Resources<'j, 't> {
    all: Vec<Resource<'j, 't>>,
    /// By URI.
    known: Index<'j>,
    /// By the address of the root.
    roots: Index<'j>,
    anchors: Index<'j>,
    anchored: Vec<&'j Json<'t>>,
    dynamic_anchors: Index<'j>,
    /// For each name, in the order of the document.
    dynamic: Vec<Vec<Place<'j, 't>>>,
}

/// Numbers by a number and a text, either of which may not matter. One type for all: each other
/// would be some KB of Wasm.
pub(super) type Index<'j> = BTreeMap<(usize, Cow<'j, str>), usize>;

/// The key of what only a text names.
pub(super) fn named(text: &str) -> (usize, Cow<'_, str>) {
    (0, Cow::Borrowed(text))
}

/// The key of a value of the tree: its address tells it from equal ones.
pub(super) fn address(json: &Json<'_>) -> (usize, Cow<'static, str>) {
    (std::ptr::from_ref(json).addr(), Cow::Borrowed(""))
}

/// The name that stands for `$recursiveAnchor`: no dynamic anchor can have it.
pub(super) const RECURSIVE: &str = "";

/// Joining URIs costs their length each time.
const MAX_URI: usize = 1024;

/// What relative references are relative to when the document has no `$id`.
const NOWHERE: &str = "schema:///";

impl<'j, 't> Resources<'j, 't> {
    pub(super) fn of(document: &'j Json<'t>) -> Result<Self, Uncheckable> {
        let dialect = dialect_of(document, Dialect::Draft2020)?;
        let base = Url::parse(NOWHERE).map_err(|_| Uncheckable::Malformed("$id"))?;
        let mut resources = Self {
            all: Vec::new(),
            known: Index::new(),
            roots: Index::new(),
            anchors: Index::new(),
            anchored: Vec::new(),
            dynamic_anchors: Index::new(),
            dynamic: Vec::new(),
        };
        let root = resources.add(base, dialect, document);
        resources.scan(document, root, true)?;
        Ok(resources)
    }

    pub(super) fn root(&self) -> Option<Place<'j, 't>> {
        let json = self.all.first()?.root;
        Some(self.place(json, 0))
    }

    pub(super) fn dialect(&self, resource: usize) -> Dialect {
        self.all
            .get(resource)
            .map_or(Dialect::Draft2020, |resource| resource.dialect)
    }

    /// A schema that stands within this resource: it may be the root of its own.
    pub(super) fn place(&self, json: &'j Json<'t>, within: usize) -> Place<'j, 't> {
        let resource = self.roots.get(&address(json)).copied().unwrap_or(within);
        Place { json, resource }
    }

    pub(super) fn resolve(
        &self,
        reference: &str,
        from: usize,
    ) -> Result<Place<'j, 't>, Uncheckable> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = if uri.is_empty() {
            from
        } else {
            self.find(uri, from)
                .ok_or_else(|| Uncheckable::RemoteReference(shown(reference)))?
        };
        let fragment = percent_decoded(fragment);
        let root = self.all.get(resource).map(|resource| resource.root);
        let found = match root {
            Some(root) if fragment.is_empty() => Some(self.place(root, resource)),
            Some(root) if fragment.starts_with('/') => self.follow(&fragment, root, resource),
            _ => self.anchor(&fragment, resource),
        };
        found.ok_or_else(|| Uncheckable::DanglingReference(shown(reference)))
    }

    /// The dynamic anchors of this name, and the number of their list.
    pub(super) fn dynamic_anchors(&self, name: &str) -> Option<(usize, &[Place<'j, 't>])> {
        let list = *self.dynamic_anchors.get(&named(name))?;
        Some((list, self.dynamic.get(list)?))
    }

    /// How many lists of dynamic anchors there are.
    pub(super) fn dynamic_lists(&self) -> usize {
        self.dynamic.len()
    }

    fn anchor(&self, name: &str, resource: usize) -> Option<Place<'j, 't>> {
        let at = *self.anchors.get(&(resource, Cow::Borrowed(name)))?;
        let json = self.anchored.get(at)?;
        Some(self.place(json, resource))
    }

    fn find(&self, uri: &str, from: usize) -> Option<usize> {
        if uri.len() > MAX_URI {
            return None;
        }
        let url = self.all.get(from)?.base.join(uri).ok()?;
        self.known.get(&named(url.as_str())).copied()
    }

    fn follow(&self, pointer: &str, root: &'j Json<'t>, resource: usize) -> Option<Place<'j, 't>> {
        let start = self.place(root, resource);
        pointer.split('/').skip(1).try_fold(start, |at, token| {
            let json = match at.json {
                Json::Array(items) => items.get(token.parse::<usize>().ok()?)?,
                object => object.get(&token.replace("~1", "/").replace("~0", "~"))?,
            };
            Some(self.place(json, at.resource))
        })
    }

    fn add(&mut self, base: Url, dialect: Dialect, root: &'j Json<'t>) -> usize {
        let index = self.all.len();
        let uri = (0, Cow::Owned(base.as_str().to_owned()));
        self.known.entry(uri).or_insert(index);
        self.roots.insert(address(root), index);
        self.all.push(Resource {
            base,
            dialect,
            root,
        });
        index
    }

    fn add_anchor(&mut self, name: &'j str, resource: usize, schema: &'j Json<'t>) {
        let key = (resource, Cow::Borrowed(name));
        self.anchors.insert(key, self.anchored.len());
        self.anchored.push(schema);
    }

    fn add_dynamic(&mut self, name: &'j str, place: Place<'j, 't>) {
        let next = self.dynamic.len();
        let list = *self.dynamic_anchors.entry(named(name)).or_insert(next);
        match self.dynamic.get_mut(list) {
            Some(places) => places.push(place),
            None => self.dynamic.push(vec![place]),
        }
    }

    /// Finds the identifiers in a schema and in those within it. As deep as the document is.
    fn scan(
        &mut self,
        schema: &'j Json<'t>,
        within: usize,
        is_root: bool,
    ) -> Result<(), Uncheckable> {
        let Json::Object(members) = schema else {
            return Ok(());
        };
        let resource = self.identify(schema, within, is_root)?;
        let dialect = self.dialect(resource);
        for (keyword, value) in members {
            match (dialect.holds(keyword), value) {
                (Some(Holds::Schemas), Json::Array(schemas)) => {
                    for schema in schemas {
                        self.scan(schema, resource, false)?;
                    }
                }
                (Some(Holds::Named), Json::Object(schemas)) => {
                    for (_, schema) in schemas {
                        self.scan(schema, resource, false)?;
                    }
                }
                (Some(Holds::Schema | Holds::Schemas), schema) => {
                    self.scan(schema, resource, false)?;
                }
                (Some(Holds::Named) | None, _) => {}
            }
        }
        Ok(())
    }

    /// Notes the identifiers of one schema; returns the resource that its members are part of.
    fn identify(
        &mut self,
        schema: &'j Json<'t>,
        within: usize,
        is_root: bool,
    ) -> Result<usize, Uncheckable> {
        let dialect = self.dialect(within);
        if dialect.ref_stands_alone() && schema.get("$ref").is_some() {
            return Ok(within);
        }
        let mut resource = within;
        if let Some(id) = schema.get("$id").and_then(Json::as_str) {
            let (uri, fragment) = id.split_once('#').unwrap_or((id, ""));
            if !uri.is_empty() {
                let base = self.all.get(within).map(|resource| &resource.base);
                let url = base
                    .filter(|_| uri.len() <= MAX_URI)
                    .and_then(|base| base.join(uri).ok())
                    .filter(|url| url.as_str().len() <= 2 * MAX_URI)
                    .ok_or(Uncheckable::Malformed("$id"))?;
                resource = if is_root {
                    let uri = (0, Cow::Owned(url.as_str().to_owned()));
                    self.known.insert(uri, within);
                    if let Some(root) = self.all.get_mut(within) {
                        root.base = url;
                    }
                    within
                } else {
                    self.add(url, dialect_of(schema, dialect)?, schema)
                };
            }
            // Anchors, before they had a keyword.
            if dialect <= Dialect::Draft7 && !fragment.is_empty() {
                self.add_anchor(fragment, resource, schema);
            }
        }
        let dialect = self.dialect(resource);
        if dialect >= Dialect::Draft2019
            && let Some(name) = schema.get("$anchor").and_then(Json::as_str)
        {
            self.add_anchor(name, resource, schema);
        }
        let json = schema;
        match dialect {
            Dialect::Draft6 | Dialect::Draft7 => {}
            Dialect::Draft2019 => {
                if let Some(Json::Bool(true)) = schema.get("$recursiveAnchor") {
                    let place = Place { json, resource };
                    self.add_dynamic(RECURSIVE, place);
                }
            }
            Dialect::Draft2020 => {
                if let Some(name) = schema.get("$dynamicAnchor").and_then(Json::as_str)
                    && name != RECURSIVE
                {
                    self.add_anchor(name, resource, schema);
                    let place = Place { json, resource };
                    self.add_dynamic(name, place);
                }
            }
        }
        Ok(resource)
    }
}

fn dialect_of(schema: &Json<'_>, default: Dialect) -> Result<Dialect, Uncheckable> {
    match schema.get("$schema") {
        Some(Json::String(uri)) => {
            Dialect::named(uri).ok_or_else(|| Uncheckable::UnknownDialect(shown(uri)))
        }
        Some(_) => Err(Uncheckable::Malformed("$schema")),
        None => Ok(default),
    }
}

fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let code = after
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(code.unwrap_or(b'%'));
        rest = code.and_then(|_| after.get(2..)).unwrap_or(after);
    }
    bytes.extend_from_slice(rest.as_bytes());
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}
