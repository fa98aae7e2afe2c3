//! A compiled schema: nodes that name each other by number, so that recursion needs no tree.

use super::number::{Decimal, Divisor};
use super::pattern::Pattern;

/// The number of a node.
pub(super) type NodeId = usize;

/// One schema of the document.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The resource it is part of, for `$dynamicRef`.
    pub(super) resource: usize,
    /// All must hold. Those that ask what others have evaluated come last.
    pub(super) checks: Vec<Check>,
    /// Whether it asks what its other keywords have evaluated.
    pub(super) asks_evaluated: bool,
}

/// Sorted names, each with what belongs to it.
pub(super) type Named<T> = Box<[(Box<str>, T)]>;

/// A keyword, or some that work together.
#[derive(Debug)]
pub(super) enum Check {
    /// The schema `false`.
    Nothing,
    Type(Types),
    /// `enum` and `const`: canonical texts, sorted.
    Values(&'static str, Box<[Box<str>]>),
    Bound(Bound, Decimal),
    MultipleOf(Divisor),
    Size(Size, u64),
    Pattern(Pattern),
    Unique,
    Required(Box<[Box<str>]>),
    DependentRequired(Named<Box<[Box<str>]>>),
    DependentSchemas(Named<NodeId>),
    Members {
        properties: Named<NodeId>,
        patterns: Box<[(Pattern, NodeId)]>,
        additional: Option<NodeId>,
    },
    Names(NodeId),
    Items {
        prefix: Box<[NodeId]>,
        rest: Option<NodeId>,
    },
    Contains {
        node: NodeId,
        min: u64,
        max: Option<u64>,
        /// Whether the items found count as evaluated.
        evaluates: bool,
    },
    AllOf(Box<[NodeId]>),
    AnyOf(Box<[NodeId]>),
    OneOf(Box<[NodeId]>),
    Not(NodeId),
    If {
        condition: NodeId,
        then: Option<NodeId>,
        otherwise: Option<NodeId>,
    },
    Ref(NodeId),
    /// Leads to the anchor, of this list, of the outermost resource entered; else to the node.
    DynamicRef(NodeId, usize),
    UnevaluatedMembers(NodeId),
    UnevaluatedItems(NodeId),
}

/// Which end of the range of a number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bound {
    Minimum,
    ExclusiveMinimum,
    Maximum,
    ExclusiveMaximum,
}

/// What is counted, and whether the limit is the least or the most.
#[derive(Debug, Clone, Copy)]
pub(super) enum Size {
    MinLength,
    MaxLength,
    MinItems,
    MaxItems,
    MinProperties,
    MaxProperties,
}

/// A set of types.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Types(u8);

impl Types {
    const NAMES: [&'static str; 7] = [
        "null", "boolean", "number", "string", "array", "object", "integer",
    ];

    /// Adds a type by name; `None` when there is no such type.
    pub(super) fn with(self, name: &str) -> Option<Self> {
        let bit = Self::NAMES.iter().position(|known| *known == name)?;
        Some(Self(self.0 | 1 << bit))
    }

    pub(super) fn has(self, name: &str) -> bool {
        self.with(name).is_some_and(|with| with.0 == self.0)
    }

    pub(super) fn names(self) -> String {
        let names: Vec<&str> = (Self::NAMES.into_iter())
            .filter(|name| self.has(name))
            .collect();
        names.join(" or ")
    }
}
