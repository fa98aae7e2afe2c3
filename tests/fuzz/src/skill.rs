//! Skills: an entry of the list on the first line, `SKILL.md` after it.

use serde_json::value::RawValue;
use workers_agents::protocol::Skill;

pub fn check(input: &[u8]) {
    let end = input
        .iter()
        .position(|&byte| byte == b'\n')
        .unwrap_or(input.len());
    let (entry, file) = input.split_at(end);
    let Ok(entry) = serde_json::from_slice::<Box<RawValue>>(entry) else {
        return;
    };
    let Ok(skill) = Skill::from_json(entry) else {
        return;
    };
    let file = file.get(1..).unwrap_or_default();
    // A digest that fits is not found by chance, so this is about what is read before.
    let _ = skill.verify(file);
    if let Ok(file) = skill.resolve(&String::from_utf8_lossy(file)) {
        assert!(!file.contains("/../"));
    }
}
