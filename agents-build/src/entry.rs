//! The entry module: `entry.mjs` of this folder plus one export line for each thing the crate exports.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Result;

use crate::glue::Exports;

const SHELL: &str = include_str!("entry.mjs");

/// Writes `entry.mjs` beside the glue.
pub(crate) fn write(folder: &Path, exports: &Exports) -> Result<()> {
    fs::write(folder.join("entry.mjs"), source(exports)?)?;
    Ok(())
}

fn source(exports: &Exports) -> Result<String> {
    let mut source = SHELL.to_owned();
    for class in &exports.classes {
        writeln!(source, "export const {class} = durable(wasm.{class});")?;
    }
    if !exports.events.is_empty() {
        writeln!(
            source,
            "export default entrypoint({:?});",
            exports.events.iter().collect::<Vec<_>>()
        )?;
    }
    Ok(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_each_class_and_the_events() {
        let exports = Exports {
            classes: ["A".to_owned(), "B".to_owned()].into(),
            events: ["fetch".to_owned()].into(),
        };
        let source = source(&exports).unwrap();
        assert!(source.ends_with(
            "export const A = durable(wasm.A);\n\
             export const B = durable(wasm.B);\n\
             export default entrypoint([\"fetch\"]);\n"
        ));
    }
}
