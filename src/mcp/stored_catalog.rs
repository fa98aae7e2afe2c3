//! A catalogue as it is stored, so that a wake need not ask for it, nor read what nobody looks at.

use std::rc::Rc;

use super::ServerId;
use super::catalog::{Catalog, left_out};
use super::manager::raw;
use super::tools::{DroppedTool, ToolIndex};
use crate::Result;
use crate::ports::{CatalogHead, CatalogRow, Timestamp};
use crate::protocol::{Prompt, Resource, ResourceTemplate, Tool};

/// Names and lengths of the tools, prompts, resources and templates; names of tools that cannot be
/// used, with the reason.
type Index = ([Vec<(String, u32)>; 4], Vec<(String, String)>);

impl Catalog {
    /// The row of a catalogue, unless it is larger than `max` bytes.
    pub(crate) fn to_row(
        &self,
        id: &ServerId,
        (server_url, fingerprint): (String, String),
        now: Timestamp,
        max: usize,
    ) -> Result<Option<CatalogRow>> {
        let mut items = Vec::new();
        let dropped = self.index.dropped().iter();
        let dropped: Vec<_> = dropped.map(|tool| (&tool.name, &tool.reason)).collect();
        let lists = [
            append(&mut items, &self.tools, Tool::name, Tool::text),
            append(&mut items, &self.prompts, Prompt::name, Prompt::text),
            append(&mut items, &self.resources, Resource::uri, Resource::text),
            append(
                &mut items,
                &self.templates,
                ResourceTemplate::uri_template,
                ResourceTemplate::text,
            ),
        ];
        let counts = lists.each_ref().map(Vec::len);
        let index = raw(&(lists, dropped))?.get().to_owned();
        let row = CatalogRow {
            head: CatalogHead {
                server_id: id.to_string(),
                server_url,
                fingerprint,
                loaded_at: now,
                counts,
            },
            index,
            items,
        };
        Ok((row.index.len() + row.items.len() <= max).then_some(row))
    }

    /// Reads a row. `None` where it is damaged: the server can be asked again.
    pub(crate) fn from_row(row: CatalogRow) -> Option<Self> {
        let (lists, dropped): Index = serde_json::from_str(&row.index).ok()?;
        let mut text = Part {
            whole: String::from_utf8(row.items).ok()?.into(),
            at: 0,
        };
        let [tools, prompts, resources, templates] = lists;
        let dropped = dropped
            .into_iter()
            .map(|(name, reason)| DroppedTool { name, reason });
        let dropped: Vec<DroppedTool> = dropped.collect();
        let catalog = Self {
            tools: text.items(tools, Tool::stored)?,
            prompts: text.items(prompts, Prompt::stored)?,
            resources: text.items(resources, Resource::stored)?,
            templates: text.items(templates, ResourceTemplate::stored)?,
            problems: left_out(&dropped),
            index: ToolIndex::new(dropped).into(),
        };
        text.is_read().then_some(catalog)
    }
}

fn append<'a, T>(
    items: &mut Vec<u8>,
    list: &'a [T],
    name: fn(&T) -> &str,
    text: fn(&T) -> &str,
) -> Vec<(&'a str, usize)> {
    let append = |item: &'a T| {
        let text = text(item);
        items.extend_from_slice(text.as_bytes());
        (name(item), text.len())
    };
    list.iter().map(append).collect()
}

/// Makes an item of its name, the text of all and its place in there.
type Make<T> = fn(Rc<str>, &Rc<str>, (u32, u32)) -> T;

/// The text of all items, and how far it has been handed out.
struct Part {
    whole: Rc<str>,
    at: u32,
}

impl Part {
    fn items<T>(&mut self, index: Vec<(String, u32)>, item: Make<T>) -> Option<Rc<[T]>> {
        let mut items = Vec::with_capacity(index.len());
        for (name, length) in index {
            let range = (self.at, self.at.checked_add(length)?);
            let text = self.whole.get(range.0 as usize..range.1 as usize)?;
            if !text.ends_with('}') {
                return None;
            }
            self.at = range.1;
            items.push(item(name.into(), &self.whole, range));
        }
        Some(items.into())
    }

    fn is_read(&self) -> bool {
        self.whole.len() == self.at as usize
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    fn catalog() -> Catalog {
        let tool = |text: &str| Tool::from_json(raw(text)).unwrap();
        let dropped = vec![DroppedTool {
            name: "odd".into(),
            reason: "its \"name\"".into(),
        }];
        Catalog {
            tools: [
                tool(r#"{"name":"a","x":1.0,"$ref":"é"}"#),
                tool(r#"{ "name":"b\n" }"#),
            ]
            .into(),
            prompts: [Prompt::from_json(raw(r#"{"name":"p"}"#)).unwrap()].into(),
            index: ToolIndex::new(dropped).into(),
            ..Catalog::default()
        }
    }

    fn of() -> (String, String) {
        ("https://a".into(), "1".into())
    }

    fn row(max: usize) -> Option<CatalogRow> {
        let id = ServerId::verbatim("s");
        catalog().to_row(&id, of(), 5, max).unwrap()
    }

    #[test]
    fn a_catalogue_survives_storage_to_the_letter() {
        let row = row(1_000).unwrap();
        assert_eq!(row.head.counts, [2, 1, 0, 0]);
        let again = Catalog::from_row(row.clone()).unwrap();
        assert_eq!(
            again.tools[0].json().get(),
            r#"{"name":"a","x":1.0,"$ref":"é"}"#
        );
        assert_eq!(again.tools[0].get::<f64>("x"), Some(1.0));
        assert_eq!(again.tools[1].name(), "b\n");
        assert_eq!(again.prompts[0].name(), "p");
        assert_eq!(again.index.dropped()[0].reason, "its \"name\"");
        let id = ServerId::verbatim("s");
        let again = again.to_row(&id, of(), 5, 1_000).unwrap();
        assert_eq!(again, Some(row));
        assert_eq!(self::row(20), None);
    }

    #[test]
    fn a_damaged_row_counts_as_absent() {
        let good = row(1_000).unwrap();
        for index in ["", "{}", "[]", "[[[],[],[],[]],[]]"] {
            let index = index.to_owned();
            assert!(
                Catalog::from_row(CatalogRow {
                    index,
                    ..good.clone()
                })
                .is_none()
            );
        }
        let mut cut = good.clone();
        while cut.items.pop().is_some() {
            assert!(Catalog::from_row(cut.clone()).is_none());
        }
        for at in 0..good.items.len() {
            // Whatever becomes of single bytes, nothing panics.
            let mut odd = good.clone();
            odd.items[at] = b'"';
            if let Some(catalog) = Catalog::from_row(odd) {
                let _ = catalog.tools[0].input_schema();
                let _ = catalog.tools[1].description();
            }
        }
    }
}
