//! Paths and class names: on one line the prefix, on the next the path.

use workers_agents::routing::{AgentPath, decode_segment, encode_segment, kebab_case};

pub fn check(input: &[u8]) {
    let Some([prefix, path]) = crate::lines(input) else {
        return;
    };
    let parts = |path| str::split(path, '/').filter(|part: &&str| !part.is_empty());
    let (before, parts): (Vec<&str>, Vec<&str>) = (parts(prefix).collect(), parts(path).collect());
    let expected = match parts.strip_prefix(&before[..]) {
        Some([class, name, ..]) => Some(AgentPath { class, name }),
        _ => None,
    };
    assert_eq!(AgentPath::parse(path, prefix), expected);

    if let Ok(name) = decode_segment(path) {
        let segment = encode_segment(&name).unwrap();
        assert_eq!(decode_segment(&segment).unwrap(), name);
        assert!(!segment.contains(['/', '\\', '?', '#', ' ']));
    }
    if let Ok(segment) = encode_segment(path) {
        assert_eq!(decode_segment(&segment).unwrap(), path);
    }

    let kebab = kebab_case(path);
    assert!(!kebab.contains(|letter: char| letter.is_ascii_uppercase()));
    assert!(!path.contains('_') || !kebab.contains('_'));
}
