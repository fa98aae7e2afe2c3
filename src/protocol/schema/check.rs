//! A value against the nodes of a schema.

use std::borrow::Cow;

use super::json::{Json, find};
use super::node::{Bound, Check, Named, Node, NodeId, Size, Types};
use super::number::Decimal;
use super::order::sorted;
use super::pattern::{Pattern, Stopped};
use super::{Limit, Schema, shown};

/// Why a check ended.
pub(super) enum Stop {
    Mismatch(Mismatch),
    GaveUp(Limit),
}

/// What does not fit, and where.
pub(super) struct Mismatch {
    /// From the inside out.
    pub(super) path: Vec<Step>,
    pub(super) keyword: &'static str,
    pub(super) reason: Cow<'static, str>,
}

/// A step from a value into its children.
pub(super) enum Step {
    Name(String),
    Index(usize),
}

/// Schemas entered within schemas. Wasm has a stack of 1 MiB, and running out of it is no error
/// but the end of the instance.
const MAX_DEPTH: usize = 400;

type Checked<T = ()> = Result<T, Stop>;

pub(super) fn check(schema: &Schema, value: &Json<'_>, max_steps: usize) -> Checked {
    let mut run = Run {
        schema,
        steps_left: max_steps,
        depth: 0,
        scope: Vec::new(),
    };
    run.node(0, value, false).map(drop)
}

struct Run<'s> {
    schema: &'s Schema,
    steps_left: usize,
    depth: usize,
    /// The resources entered, the outermost first.
    scope: Vec<usize>,
}

/// Which children of a value have been evaluated. Empty where nobody asks.
#[derive(Default)]
struct Marks(Vec<bool>);

impl Marks {
    fn set(&mut self, index: usize) {
        if let Some(mark) = self.0.get_mut(index) {
            *mark = true;
        }
    }

    fn add(&mut self, other: &Self) {
        for (mark, other) in self.0.iter_mut().zip(&other.0) {
            *mark |= other;
        }
    }

    fn has(&self, index: usize) -> bool {
        self.0.get(index).copied().unwrap_or(false)
    }
}

impl<'s> Run<'s> {
    /// Whether the value fits the node. `wanted` asks for the marks of its children.
    fn node(&mut self, id: NodeId, value: &Json<'_>, wanted: bool) -> Checked<Marks> {
        self.spend(1)?;
        let Some(node) = self.schema.nodes.get(id) else {
            return Ok(Marks::default());
        };
        if node.checks.is_empty() {
            return self.unmarked(value, wanted);
        }
        if self.depth >= MAX_DEPTH {
            return Err(Stop::GaveUp(Limit::Depth));
        }
        self.depth += 1;
        let enters = self.scope.last() != Some(&node.resource);
        if enters {
            self.scope.push(node.resource);
        }
        let result = self.checks(node, value, wanted);
        if enters {
            self.scope.pop();
        }
        self.depth -= 1;
        result
    }

    fn checks(&mut self, node: &'s Node, value: &Json<'_>, wanted: bool) -> Checked<Marks> {
        let wanted = wanted || node.asks_evaluated;
        let mut marks = self.unmarked(value, wanted)?;
        for check in &node.checks {
            self.spend(1)?;
            self.check(check, value, wanted, &mut marks)?;
        }
        Ok(marks)
    }

    fn unmarked(&mut self, value: &Json<'_>, wanted: bool) -> Checked<Marks> {
        let children = match value {
            Json::Array(items) if wanted => items.len(),
            Json::Object(members) if wanted => members.len(),
            _ => return Ok(Marks::default()),
        };
        self.spend(children / 16)?;
        Ok(Marks(vec![false; children]))
    }

    fn check(
        &mut self,
        check: &'s Check,
        value: &Json<'_>,
        wanted: bool,
        marks: &mut Marks,
    ) -> Checked {
        match check {
            Check::Nothing => fail("false", "nothing is allowed here"),
            Check::Type(types) => self.types(*types, value),
            Check::Values(keyword, texts) => self.values(keyword, texts, value),
            Check::Unique => self.unique(value),
            Check::Bound(bound, limit) => match value {
                Json::Number(text) => {
                    self.spend(text.len() / 8)?;
                    bounds(*bound, limit, text)
                }
                _ => Ok(()),
            },
            Check::MultipleOf(divisor) => match value {
                Json::Number(text) => {
                    self.spend(text.len() / 8)?;
                    ensure(
                        Decimal::read(text).is_multiple_of(divisor),
                        "multipleOf",
                        "is not a multiple of the step",
                    )
                }
                _ => Ok(()),
            },
            Check::Size(size, limit) => self.size(*size, *limit, value),
            Check::Pattern(pattern) => match value {
                Json::String(text) => {
                    let matches = self.matches(pattern, text)?;
                    ensure(matches, "pattern", "does not match the pattern")
                }
                _ => Ok(()),
            },
            Check::Required(names) => self.required(names, value, "required"),
            Check::DependentRequired(dependencies) => {
                self.each_present(dependencies, value, |run, names| {
                    run.required(names, value, "dependentRequired")
                })
            }
            Check::DependentSchemas(dependencies) => {
                self.each_present(dependencies, value, |run, node| {
                    run.in_place(*node, value, wanted, marks)
                })
            }
            Check::Members {
                properties,
                patterns,
                additional,
            } => self.members(properties, patterns, *additional, value, marks),
            Check::Names(node) => self.names(*node, value),
            Check::Items { prefix, rest } => self.items(prefix, *rest, value, marks),
            Check::Contains {
                node,
                min,
                max,
                evaluates,
            } => self.contains(*node, (*min, *max), *evaluates, value, marks),
            Check::AllOf(nodes) => nodes
                .iter()
                .try_for_each(|node| self.in_place(*node, value, wanted, marks)),
            Check::AnyOf(nodes) => self.any_of(nodes, value, wanted, marks),
            Check::OneOf(nodes) => self.one_of(nodes, value, wanted, marks),
            Check::Not(node) => match self.fits(*node, value, false)? {
                Some(_) => fail("not", "is what the schema excludes"),
                None => Ok(()),
            },
            Check::If {
                condition,
                then,
                otherwise,
            } => {
                let branch = if let Some(found) = self.fits(*condition, value, wanted)? {
                    marks.add(&found);
                    then
                } else {
                    otherwise
                };
                branch.map_or(Ok(()), |node| self.in_place(node, value, wanted, marks))
            }
            Check::Ref(node) => self.in_place(*node, value, wanted, marks),
            Check::DynamicRef(node, list) => {
                let node = self.dynamic(*list)?.unwrap_or(*node);
                self.in_place(node, value, wanted, marks)
            }
            Check::UnevaluatedMembers(node) => self.unevaluated_members(*node, value, marks),
            Check::UnevaluatedItems(node) => self.unevaluated_items(*node, value, marks),
        }
    }

    /// The value itself against another node.
    fn in_place(
        &mut self,
        node: NodeId,
        value: &Json<'_>,
        wanted: bool,
        marks: &mut Marks,
    ) -> Checked {
        let found = self.node(node, value, wanted)?;
        marks.add(&found);
        Ok(())
    }

    /// Like `node`, where not to fit is an answer.
    fn fits(&mut self, node: NodeId, value: &Json<'_>, wanted: bool) -> Checked<Option<Marks>> {
        match self.node(node, value, wanted) {
            Ok(marks) => Ok(Some(marks)),
            Err(Stop::Mismatch(_)) => Ok(None),
            Err(Stop::GaveUp(limit)) => Err(Stop::GaveUp(limit)),
        }
    }

    fn types(&mut self, types: Types, value: &Json<'_>) -> Checked {
        let name = match value {
            Json::Null => "null",
            Json::Bool(_) => "boolean",
            Json::Number(_) => "number",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        };
        let fits = types.has(name)
            || match value {
                Json::Number(text) if types.has("integer") => {
                    self.spend(text.len() / 8)?;
                    Decimal::read(text).is_integer()
                }
                _ => false,
            };
        if fits {
            return Ok(());
        }
        fail("type", format!("is {name} instead of {}", types.names()))
    }

    fn values(&mut self, keyword: &'static str, texts: &[Box<str>], value: &Json<'_>) -> Checked {
        let text = self.canonical(value)?;
        let found = texts.binary_search_by(|known| known.as_ref().cmp(&text));
        ensure(found.is_ok(), keyword, "is not one of the allowed values")
    }

    fn unique(&mut self, value: &Json<'_>) -> Checked {
        let Json::Array(items) = value else {
            return Ok(());
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            texts.push(self.canonical(item)?);
        }
        // Sorting compares each about as often as the number of items has bits.
        self.spend(items.len() * usize::BITS.saturating_sub(items.len().leading_zeros()) as usize)?;
        let texts = sorted(texts, String::cmp);
        let has_twins = texts
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a == b));
        ensure(!has_twins, "uniqueItems", "has an item twice")
    }

    fn size(&mut self, size: Size, limit: u64, value: &Json<'_>) -> Checked {
        let (count, unit) = match (size, value) {
            (Size::MinLength | Size::MaxLength, Json::String(text)) => {
                self.spend(text.len() / 64)?;
                (text.chars().count(), "characters")
            }
            (Size::MinItems | Size::MaxItems, Json::Array(items)) => (items.len(), "items"),
            (Size::MinProperties | Size::MaxProperties, Json::Object(members)) => {
                (members.len(), "members")
            }
            _ => return Ok(()),
        };
        let count = count as u64;
        let (keyword, fits) = match size {
            Size::MinLength => ("minLength", count >= limit),
            Size::MaxLength => ("maxLength", count <= limit),
            Size::MinItems => ("minItems", count >= limit),
            Size::MaxItems => ("maxItems", count <= limit),
            Size::MinProperties => ("minProperties", count >= limit),
            Size::MaxProperties => ("maxProperties", count <= limit),
        };
        if fits {
            return Ok(());
        }
        fail(keyword, format!("has {count} {unit}, the limit is {limit}"))
    }

    fn required(&mut self, names: &[Box<str>], value: &Json<'_>, keyword: &'static str) -> Checked {
        let Json::Object(members) = value else {
            return Ok(());
        };
        self.spend(names.len())?;
        match names.iter().find(|name| find(members, name).is_none()) {
            Some(name) => fail(keyword, format!("lacks the member \"{}\"", shown(name))),
            None => Ok(()),
        }
    }

    fn each_present<T>(
        &mut self,
        dependencies: &'s Named<T>,
        value: &Json<'_>,
        mut then: impl FnMut(&mut Self, &'s T) -> Checked,
    ) -> Checked {
        let Json::Object(members) = value else {
            return Ok(());
        };
        self.spend(dependencies.len())?;
        dependencies
            .iter()
            .filter(|(name, _)| find(members, name).is_some())
            .try_for_each(|(_, dependency)| then(self, dependency))
    }

    fn members(
        &mut self,
        properties: &Named<NodeId>,
        patterns: &[(Pattern, NodeId)],
        additional: Option<NodeId>,
        value: &Json<'_>,
        marks: &mut Marks,
    ) -> Checked {
        let Json::Object(members) = value else {
            return Ok(());
        };
        for (index, (name, child)) in members.iter().enumerate() {
            self.spend(1)?;
            let mut is_known = false;
            if let Some((_, node)) = find(properties, name).and_then(|at| properties.get(at)) {
                is_known = true;
                self.member(*node, name, child)?;
            }
            for (pattern, node) in patterns {
                if self.matches(pattern, name)? {
                    is_known = true;
                    self.member(*node, name, child)?;
                }
            }
            if let (false, Some(node)) = (is_known, additional) {
                is_known = true;
                self.member(node, name, child)?;
            }
            if is_known {
                marks.set(index);
            }
        }
        Ok(())
    }

    fn names(&mut self, node: NodeId, value: &Json<'_>) -> Checked {
        let Json::Object(members) = value else {
            return Ok(());
        };
        for (name, _) in members {
            let text = Json::String(Cow::Borrowed(name));
            if self.fits(node, &text, false)?.is_none() {
                return fail(
                    "propertyNames",
                    format!("has a member that may not be named so: \"{}\"", shown(name)),
                );
            }
        }
        Ok(())
    }

    fn items(
        &mut self,
        prefix: &[NodeId],
        rest: Option<NodeId>,
        value: &Json<'_>,
        marks: &mut Marks,
    ) -> Checked {
        let Json::Array(items) = value else {
            return Ok(());
        };
        for (index, item) in items.iter().enumerate() {
            let Some(node) = prefix.get(index).copied().or(rest) else {
                break;
            };
            self.item(node, index, item)?;
            marks.set(index);
        }
        Ok(())
    }

    fn contains(
        &mut self,
        node: NodeId,
        (min, max): (u64, Option<u64>),
        evaluates: bool,
        value: &Json<'_>,
        marks: &mut Marks,
    ) -> Checked {
        let Json::Array(items) = value else {
            return Ok(());
        };
        let mut count = 0_u64;
        for (index, item) in items.iter().enumerate() {
            if self.fits(node, item, false)?.is_some() {
                count += 1;
                if evaluates {
                    marks.set(index);
                }
            }
        }
        ensure(
            count >= min,
            "contains",
            "has too few of the items it must contain",
        )?;
        ensure(
            max.is_none_or(|max| count <= max),
            "maxContains",
            "has too many of the items it must contain",
        )
    }

    fn any_of(
        &mut self,
        nodes: &[NodeId],
        value: &Json<'_>,
        wanted: bool,
        marks: &mut Marks,
    ) -> Checked {
        let mut matched = false;
        for node in nodes {
            if let Some(found) = self.fits(*node, value, wanted)? {
                matched = true;
                marks.add(&found);
                // Further ones can only add marks.
                if !wanted {
                    break;
                }
            }
        }
        ensure(matched, "anyOf", "fits none of the alternatives")
    }

    fn one_of(
        &mut self,
        nodes: &[NodeId],
        value: &Json<'_>,
        wanted: bool,
        marks: &mut Marks,
    ) -> Checked {
        let mut matched = false;
        for node in nodes {
            if let Some(found) = self.fits(*node, value, wanted)? {
                ensure(!matched, "oneOf", "fits more than one of the alternatives")?;
                matched = true;
                marks.add(&found);
            }
        }
        ensure(matched, "oneOf", "fits none of the alternatives")
    }

    fn dynamic(&mut self, list: usize) -> Checked<Option<NodeId>> {
        self.spend(self.scope.len())?;
        let Some(anchors) = self.schema.dynamic.get(list) else {
            return Ok(None);
        };
        let node_of = |resource: &usize| {
            let at = anchors.binary_search_by_key(resource, |(resource, _)| *resource);
            at.ok()
                .and_then(|at| anchors.get(at))
                .map(|(_, node)| *node)
        };
        Ok(self.scope.iter().find_map(node_of))
    }

    fn unevaluated_members(
        &mut self,
        node: NodeId,
        value: &Json<'_>,
        marks: &mut Marks,
    ) -> Checked {
        let Json::Object(members) = value else {
            return Ok(());
        };
        for (index, (name, child)) in members.iter().enumerate() {
            if !marks.has(index) {
                self.member(node, name, child)?;
                marks.set(index);
            }
        }
        Ok(())
    }

    fn unevaluated_items(&mut self, node: NodeId, value: &Json<'_>, marks: &mut Marks) -> Checked {
        let Json::Array(items) = value else {
            return Ok(());
        };
        for (index, item) in items.iter().enumerate() {
            if !marks.has(index) {
                self.item(node, index, item)?;
                marks.set(index);
            }
        }
        Ok(())
    }

    fn member(&mut self, node: NodeId, name: &str, child: &Json<'_>) -> Checked {
        let result = self.node(node, child, false);
        result
            .map(drop)
            .map_err(|stop| stop.at(|| Step::Name(shown(name))))
    }

    fn item(&mut self, node: NodeId, index: usize, child: &Json<'_>) -> Checked {
        let result = self.node(node, child, false);
        result
            .map(drop)
            .map_err(|stop| stop.at(|| Step::Index(index)))
    }

    fn matches(&mut self, pattern: &Pattern, text: &str) -> Checked<bool> {
        let mut spend = |steps| self.spend(steps).map_err(|_| Stopped);
        let matched = pattern.is_match(text, &mut spend);
        matched.map_err(|Stopped| Stop::GaveUp(Limit::Work))
    }

    fn canonical(&mut self, value: &Json<'_>) -> Checked<String> {
        // What is left bounds the text, so what is spent afterwards was there to be spent.
        let max = self.steps_left.saturating_mul(8);
        let text = value.canonical(max).ok_or(Stop::GaveUp(Limit::Work))?;
        self.spend(text.len() / 8 + 1)?;
        Ok(text)
    }

    fn spend(&mut self, steps: usize) -> Checked {
        let left = self.steps_left.checked_sub(steps);
        self.steps_left = left.ok_or(Stop::GaveUp(Limit::Work))?;
        Ok(())
    }
}

impl Stop {
    fn at(mut self, step: impl FnOnce() -> Step) -> Self {
        if let Self::Mismatch(mismatch) = &mut self {
            mismatch.path.push(step());
        }
        self
    }
}

fn bounds(bound: Bound, limit: &Decimal, text: &str) -> Checked {
    let number = Decimal::read(text);
    match bound {
        Bound::Minimum => ensure(number >= *limit, "minimum", "is less than the minimum"),
        Bound::ExclusiveMinimum => ensure(
            number > *limit,
            "exclusiveMinimum",
            "is not more than the minimum",
        ),
        Bound::Maximum => ensure(number <= *limit, "maximum", "is more than the maximum"),
        Bound::ExclusiveMaximum => ensure(
            number < *limit,
            "exclusiveMaximum",
            "is not less than the maximum",
        ),
    }
}

fn ensure(holds: bool, keyword: &'static str, reason: &'static str) -> Checked {
    if holds { Ok(()) } else { fail(keyword, reason) }
}

fn fail(keyword: &'static str, reason: impl Into<Cow<'static, str>>) -> Checked {
    Err(Stop::Mismatch(Mismatch {
        path: Vec::new(),
        keyword,
        reason: reason.into(),
    }))
}
