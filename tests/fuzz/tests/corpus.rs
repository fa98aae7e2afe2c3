//! Every target on its corpus; what a search once found stays among them.

use std::fs;
use std::path::Path;

use fuzz::TARGETS;

#[test]
fn every_property_holds_for_the_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in TARGETS {
        let files = fs::read_dir(corpus.join(name)).expect(name);
        let mut count = 0;
        for file in files {
            let path = file.expect(name).path();
            println!("{}", path.display());
            target(&fs::read(path).expect(name));
            count += 1;
        }
        assert!(count > 0, "{name} has no corpus");
    }
}
