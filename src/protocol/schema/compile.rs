//! From the text of a schema to its nodes.

use std::borrow::Cow;

use super::dialect::Dialect;
use super::json::Json;
use super::node::{Bound, Check, Named, Node, NodeId, Size, Types};
use super::number::Decimal;
use super::order::sorted;
use super::pattern::{MAX_STATES, Pattern};
use super::resources::{Index, Place, RECURSIVE, Resources, address};
use super::{Uncheckable, shown};

/// What became of a document.
pub(super) struct Compiled {
    /// The first one is the root.
    pub(super) nodes: Vec<Node>,
    /// For each list of dynamic anchors: resources, sorted, each with its node.
    pub(super) dynamic: Vec<Box<[(usize, NodeId)]>>,
}

type Result<T> = std::result::Result<T, Uncheckable>;

pub(super) fn compile(document: &Json<'_>) -> Result<Compiled> {
    let resources = Resources::of(document)?;
    let mut compiler = Compiler {
        resources: &resources,
        known: Index::new(),
        places: Vec::new(),
        dynamic: vec![Box::default(); resources.dynamic_lists()],
        states_left: MAX_STATES,
    };
    if let Some(root) = resources.root() {
        compiler.node(root);
    }
    // Compiling a place finds others. No recursion: the list is the worklist.
    let mut nodes = Vec::new();
    while let Some(&place) = compiler.places.get(nodes.len()) {
        nodes.push(compiler.compile(place)?);
    }
    Ok(Compiled {
        nodes,
        dynamic: compiler.dynamic,
    })
}

struct Compiler<'r, 'j, 't> {
    resources: &'r Resources<'j, 't>,
    known: Index<'j>,
    /// By number of node.
    places: Vec<Place<'j, 't>>,
    dynamic: Vec<Box<[(usize, NodeId)]>>,
    states_left: usize,
}

impl<'j, 't> Compiler<'_, 'j, 't> {
    fn node(&mut self, place: Place<'j, 't>) -> NodeId {
        let next = self.places.len();
        let id = *self.known.entry(address(place.json)).or_insert(next);
        if id == next {
            self.places.push(place);
        }
        id
    }

    fn compile(&mut self, place: Place<'j, 't>) -> Result<Node> {
        let mut node = Node {
            resource: place.resource,
            ..Node::default()
        };
        match place.json {
            Json::Bool(true) => {}
            Json::Bool(false) => node.checks.push(Check::Nothing),
            Json::Object(_) => {
                let dialect = self.resources.dialect(place.resource);
                let mut keywords = Keywords {
                    compiler: self,
                    place,
                    dialect,
                    checks: Vec::new(),
                };
                if !(keywords.references()? && dialect.ref_stands_alone()) {
                    keywords.all()?;
                }
                node.checks = keywords.checks;
            }
            _ => return Err(Uncheckable::Malformed("schema")),
        }
        node.asks_evaluated = node.checks.iter().any(|check| {
            matches!(
                check,
                Check::UnevaluatedMembers(_) | Check::UnevaluatedItems(_)
            )
        });
        Ok(node)
    }

    fn pattern(&mut self, text: &str) -> Result<Pattern> {
        Pattern::compile(text, &mut self.states_left)
            .map_err(|_| Uncheckable::BadPattern(shown(text)))
    }
}

/// The keywords of one schema.
struct Keywords<'c, 'r, 'j, 't> {
    compiler: &'c mut Compiler<'r, 'j, 't>,
    place: Place<'j, 't>,
    dialect: Dialect,
    checks: Vec<Check>,
}

impl<'j, 't> Keywords<'_, '_, 'j, 't> {
    /// Whether there is a `$ref`.
    fn references(&mut self) -> Result<bool> {
        let has_ref = match self.text("$ref")? {
            Some(reference) => {
                let node = self.resolve(reference)?;
                self.checks.push(Check::Ref(node));
                true
            }
            None => false,
        };
        match self.dialect {
            Dialect::Draft6 | Dialect::Draft7 => {}
            Dialect::Draft2019 => {
                if let Some(reference) = self.text("$recursiveRef")? {
                    self.dynamic_reference(reference, RECURSIVE)?;
                }
            }
            Dialect::Draft2020 => {
                if let Some(reference) = self.text("$dynamicRef")? {
                    let fragment = reference.split_once('#').map_or("", |(_, name)| name);
                    self.dynamic_reference(reference, fragment)?;
                }
            }
        }
        Ok(has_ref)
    }

    fn resolve(&mut self, reference: &str) -> Result<NodeId> {
        let place = self
            .compiler
            .resources
            .resolve(reference, self.place.resource)?;
        Ok(self.compiler.node(place))
    }

    /// Only a reference that leads to a dynamic anchor is dynamic.
    fn dynamic_reference(&mut self, reference: &str, name: &str) -> Result<()> {
        let resources = self.compiler.resources;
        let target = resources.resolve(reference, self.place.resource)?;
        let node = self.compiler.node(target);
        let is_anchor = match target.json.get("$dynamicAnchor") {
            Some(anchor) => anchor.as_str() == Some(name),
            None => matches!(target.json.get("$recursiveAnchor"), Some(Json::Bool(true))),
        };
        let Some((list, anchors)) = resources.dynamic_anchors(name).filter(|_| is_anchor) else {
            self.checks.push(Check::Ref(node));
            return Ok(());
        };
        let is_known = (self.compiler.dynamic.get(list)).is_some_and(|nodes| !nodes.is_empty());
        if !is_known {
            let nodes = anchors
                .iter()
                .map(|anchor| (anchor.resource, self.compiler.node(*anchor)))
                .collect();
            let nodes = sorted(nodes, |(a, _), (b, _)| a.cmp(b));
            if let Some(empty) = self.compiler.dynamic.get_mut(list) {
                *empty = nodes.into();
            }
        }
        self.checks.push(Check::DynamicRef(node, list));
        Ok(())
    }

    fn all(&mut self) -> Result<()> {
        self.values()?;
        self.numbers()?;
        self.sizes()?;
        if let Some(text) = self.text("pattern")? {
            let pattern = self.compiler.pattern(text)?;
            self.checks.push(Check::Pattern(pattern));
        }
        self.required()?;
        self.members()?;
        self.items()?;
        self.contains()?;
        self.combinations()?;
        if self
            .get("uniqueItems")
            .is_some_and(|value| matches!(value, Json::Bool(true)))
        {
            self.checks.push(Check::Unique);
        }
        if self.dialect >= Dialect::Draft2019 {
            if let Some(node) = self.schema("unevaluatedProperties") {
                self.checks.push(Check::UnevaluatedMembers(node));
            }
            if let Some(node) = self.schema("unevaluatedItems") {
                self.checks.push(Check::UnevaluatedItems(node));
            }
        }
        Ok(())
    }

    fn values(&mut self) -> Result<()> {
        if let Some(value) = self.get("type") {
            let types = match value {
                Json::String(name) => Types::default().with(name),
                Json::Array(names) => names
                    .iter()
                    .try_fold(Types::default(), |types, name| types.with(name.as_str()?)),
                _ => None,
            };
            let types = types.ok_or(Uncheckable::Malformed("type"))?;
            self.checks.push(Check::Type(types));
        }
        if let Some(value) = self.get("const") {
            let texts = [canonical(value)];
            self.checks.push(Check::Values("const", Box::new(texts)));
        }
        if let Some(values) = self.array("enum")? {
            let texts = sorted(values.iter().map(canonical).collect(), Ord::cmp);
            self.checks.push(Check::Values("enum", texts.into()));
        }
        Ok(())
    }

    fn numbers(&mut self) -> Result<()> {
        for (keyword, bound) in [
            ("minimum", Bound::Minimum),
            ("exclusiveMinimum", Bound::ExclusiveMinimum),
            ("maximum", Bound::Maximum),
            ("exclusiveMaximum", Bound::ExclusiveMaximum),
        ] {
            if let Some(limit) = self.number(keyword)? {
                self.checks.push(Check::Bound(bound, limit));
            }
        }
        if let Some(number) = self.number("multipleOf")? {
            let divisor = number.as_divisor();
            let divisor = divisor.ok_or(Uncheckable::Malformed("multipleOf"))?;
            self.checks.push(Check::MultipleOf(divisor));
        }
        Ok(())
    }

    fn sizes(&mut self) -> Result<()> {
        for (keyword, size) in [
            ("minLength", Size::MinLength),
            ("maxLength", Size::MaxLength),
            ("minItems", Size::MinItems),
            ("maxItems", Size::MaxItems),
            ("minProperties", Size::MinProperties),
            ("maxProperties", Size::MaxProperties),
        ] {
            if let Some(limit) = self.count(keyword)? {
                self.checks.push(Check::Size(size, limit));
            }
        }
        Ok(())
    }

    fn required(&mut self) -> Result<()> {
        if let Some(value) = self.get("required") {
            let names = names(value).ok_or(Uncheckable::Malformed("required"))?;
            self.checks.push(Check::Required(names));
        }
        let mut dependent_names = Vec::new();
        let mut dependent_schemas = Vec::new();
        for keyword in ["dependencies", "dependentRequired"] {
            if keyword == "dependentRequired" && self.dialect < Dialect::Draft2019 {
                continue;
            }
            for (name, value) in self.object(keyword)?.unwrap_or_default() {
                match names(value) {
                    Some(names) => dependent_names.push((name.as_ref().into(), names)),
                    None if keyword == "dependencies" => {
                        dependent_schemas.push((name.as_ref().into(), self.child(value)));
                    }
                    None => return Err(Uncheckable::Malformed("dependentRequired")),
                }
            }
        }
        if self.dialect >= Dialect::Draft2019 {
            dependent_schemas.extend(self.named("dependentSchemas")?);
        }
        if !dependent_names.is_empty() {
            self.checks
                .push(Check::DependentRequired(dependent_names.into()));
        }
        if !dependent_schemas.is_empty() {
            self.checks
                .push(Check::DependentSchemas(dependent_schemas.into()));
        }
        Ok(())
    }

    fn members(&mut self) -> Result<()> {
        let properties: Named<NodeId> = self.named("properties")?.into();
        let mut patterns = Vec::new();
        for (text, value) in self.object("patternProperties")?.unwrap_or_default() {
            patterns.push((self.compiler.pattern(text)?, self.child(value)));
        }
        let additional = self.schema("additionalProperties");
        if !properties.is_empty() || !patterns.is_empty() || additional.is_some() {
            self.checks.push(Check::Members {
                properties,
                patterns: patterns.into(),
                additional,
            });
        }
        if let Some(node) = self.schema("propertyNames") {
            self.checks.push(Check::Names(node));
        }
        Ok(())
    }

    fn items(&mut self) -> Result<()> {
        let items = self.get("items");
        let (prefix, rest) = match (items, self.array_of("prefixItems")?) {
            (Some(Json::Array(tuple)), None) => (tuple.as_slice(), self.get("additionalItems")),
            (Some(Json::Array(_)), Some(_)) => return Err(Uncheckable::Malformed("items")),
            (items, tuple) => (tuple.unwrap_or_default(), items),
        };
        let prefix: Box<[NodeId]> = prefix.iter().map(|item| self.child(item)).collect();
        let rest = rest.map(|rest| self.child(rest));
        if !prefix.is_empty() || rest.is_some() {
            self.checks.push(Check::Items { prefix, rest });
        }
        Ok(())
    }

    fn contains(&mut self) -> Result<()> {
        let Some(node) = self.schema("contains") else {
            return Ok(());
        };
        let (mut min, mut max) = (1, None);
        if self.dialect >= Dialect::Draft2019 {
            min = self.count("minContains")?.unwrap_or(min);
            max = self.count("maxContains")?;
        }
        self.checks.push(Check::Contains {
            node,
            min,
            max,
            evaluates: self.dialect >= Dialect::Draft2020,
        });
        Ok(())
    }

    fn combinations(&mut self) -> Result<()> {
        for (keyword, check) in [
            ("allOf", Check::AllOf as fn(Box<[NodeId]>) -> Check),
            ("anyOf", Check::AnyOf),
            ("oneOf", Check::OneOf),
        ] {
            if let Some(schemas) = self.array(keyword)? {
                let nodes = schemas.iter().map(|schema| self.child(schema)).collect();
                self.checks.push(check(nodes));
            }
        }
        if let Some(node) = self.schema("not") {
            self.checks.push(Check::Not(node));
        }
        if self.dialect >= Dialect::Draft7
            && let Some(condition) = self.schema("if")
        {
            let then = self.schema("then");
            let otherwise = self.schema("else");
            self.checks.push(Check::If {
                condition,
                then,
                otherwise,
            });
        }
        Ok(())
    }

    fn get(&self, keyword: &str) -> Option<&'j Json<'t>> {
        self.place.json.get(keyword)
    }

    fn child(&mut self, json: &'j Json<'t>) -> NodeId {
        let place = self.compiler.resources.place(json, self.place.resource);
        self.compiler.node(place)
    }

    fn schema(&mut self, keyword: &str) -> Option<NodeId> {
        let json = self.get(keyword)?;
        Some(self.child(json))
    }

    fn named(&mut self, keyword: &'static str) -> Result<Vec<(Box<str>, NodeId)>> {
        let members = self.object(keyword)?.unwrap_or_default();
        Ok(members
            .iter()
            .map(|(name, json)| (name.as_ref().into(), self.child(json)))
            .collect())
    }

    fn text(&self, keyword: &'static str) -> Result<Option<&'j str>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(Uncheckable::Malformed(keyword)),
        }
    }

    fn number(&self, keyword: &'static str) -> Result<Option<Decimal>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(Json::Number(text)) => Ok(Some(Decimal::read(text))),
            Some(_) => Err(Uncheckable::Malformed(keyword)),
        }
    }

    fn count(&self, keyword: &'static str) -> Result<Option<u64>> {
        match self.number(keyword)? {
            None => Ok(None),
            Some(number) => number
                .as_count()
                .map(Some)
                .ok_or(Uncheckable::Malformed(keyword)),
        }
    }

    fn array(&self, keyword: &'static str) -> Result<Option<&'j [Json<'t>]>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(Json::Array(items)) => Ok(Some(items)),
            Some(_) => Err(Uncheckable::Malformed(keyword)),
        }
    }

    /// Like `array`, when the dialect knows the keyword.
    fn array_of(&self, keyword: &'static str) -> Result<Option<&'j [Json<'t>]>> {
        match self.dialect.holds(keyword) {
            Some(_) => self.array(keyword),
            None => Ok(None),
        }
    }

    fn object(&self, keyword: &'static str) -> Result<Option<Members<'j, 't>>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(Json::Object(members)) => Ok(Some(members)),
            Some(_) => Err(Uncheckable::Malformed(keyword)),
        }
    }
}

type Members<'j, 't> = &'j [(Cow<'t, str>, Json<'t>)];

fn canonical(value: &Json<'_>) -> Box<str> {
    // Numbers aside it is about as long as the text, which is bounded.
    value.canonical(usize::MAX).unwrap_or_default().into()
}

fn names(value: &Json<'_>) -> Option<Box<[Box<str>]>> {
    let Json::Array(names) = value else {
        return None;
    };
    names
        .iter()
        .map(|name| Some(name.as_str()?.into()))
        .collect()
}
