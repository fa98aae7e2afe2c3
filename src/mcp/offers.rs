//! What this client offers servers beyond requests: the capabilities it declares.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The client capabilities that have a handler behind them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four capabilities, each declared or not"
)]
pub(crate) struct Offers {
    /// Elicitation by a form.
    pub(crate) form: bool,
    /// Elicitation by a URL.
    pub(crate) url: bool,
    /// Sampling.
    pub(crate) sampling: bool,
    /// Roots.
    pub(crate) roots: bool,
}

/// The extension by which a server of the modern era may answer a call with a task.
pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

impl Offers {
    /// Whether a server may ask us for anything.
    pub(crate) const fn any(self) -> bool {
        self.form || self.url || self.sampling || self.roots
    }

    /// Whether a server may send this request.
    pub(crate) fn cover(self, method: &str) -> bool {
        match method {
            "elicitation/create" => self.form || self.url,
            "sampling/createMessage" => self.sampling,
            "roots/list" => self.roots,
            _ => false,
        }
    }

    /// The value of `capabilities`, or of the modern era's `clientCapabilities`.
    ///
    /// Roots declare `listChanged` in the legacy era only: the modern one has no such notification
    /// (2026-07-28, roots).
    pub(crate) fn declare(self, modern: bool, tasks: bool) -> Box<RawValue> {
        let mut declared = Vec::new();
        match (self.form, self.url) {
            (false, false) => {}
            (true, false) => declared.push(r#""elicitation":{"form":{}}"#),
            (false, true) => declared.push(r#""elicitation":{"url":{}}"#),
            (true, true) => declared.push(r#""elicitation":{"form":{},"url":{}}"#),
        }
        if modern && tasks {
            declared.push(r#""extensions":{"io.modelcontextprotocol/tasks":{}}"#);
        }
        if self.roots {
            declared.push(if modern {
                r#""roots":{}"#
            } else {
                r#""roots":{"listChanged":true}"#
            });
        }
        if self.sampling {
            declared.push(r#""sampling":{}"#);
        }
        // Every request of the modern era says it, so that no tree is built for it.
        RawValue::from_string(format!("{{{}}}", declared.join(","))).unwrap_or_default()
    }

    /// The stamp stored with a server, in the form of the TypeScript package: an object of
    /// capabilities. `None` where nothing is offered.
    pub(crate) fn stamp(self) -> Option<Value> {
        let declared = self.declare(true, false);
        let stamp = serde_json::from_str(declared.get()).ok();
        stamp.filter(|_| self.any())
    }

    /// Reads a stamp. An elicitation without modes is one by forms (2025-11-25, elicitation).
    pub(crate) fn read(stamp: &Value) -> Self {
        let declared = |name: &str| stamp.get(name).is_some_and(Value::is_object);
        let mode = |name: &str| {
            stamp
                .get("elicitation")
                .and_then(|modes| modes.get(name))
                .is_some_and(Value::is_object)
        };
        let no_modes = stamp
            .get("elicitation")
            .and_then(Value::as_object)
            .is_some_and(Map::is_empty);
        Self {
            form: mode("form") || no_modes,
            url: mode("url"),
            sampling: declared("sampling"),
            roots: declared("roots"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_stamp_reads_back_as_what_was_offered() {
        for bits in 0..16_u8 {
            let offers = Offers {
                form: bits & 1 != 0,
                url: bits & 2 != 0,
                sampling: bits & 4 != 0,
                roots: bits & 8 != 0,
            };
            assert_eq!(offers.any(), bits != 0);
            let stamp = offers.stamp();
            assert_eq!(stamp.is_some(), bits != 0);
            assert_eq!(stamp.as_ref().map(Offers::read).unwrap_or_default(), offers);
        }
        for (stamp, form) in [
            (json!({"elicitation": {}}), true),
            (json!({"elicitation": {"url": {}}}), false),
            (json!({"elicitation": null}), false),
            (json!([]), false),
        ] {
            assert_eq!(Offers::read(&stamp).form, form, "{stamp}");
        }
    }

    #[test]
    fn each_era_is_told_what_it_knows() {
        let all = Offers {
            form: true,
            url: true,
            sampling: true,
            roots: true,
        };
        assert_eq!(
            all.declare(false, true).get(),
            r#"{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"sampling":{}}"#
        );
        assert_eq!(
            all.declare(true, true).get(),
            r#"{"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}},"roots":{},"sampling":{}}"#
        );
        assert_eq!(Offers::default().declare(true, false).get(), "{}");
    }
}
