//! Skills: listed without reading them, and read only as they were listed.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Value, json};
use workers_agents::Error;
use workers_agents::protocol::{Skill, SkillMismatch};

use crate::support::mcp_server::{modern, result, rpc_error};
use crate::support::{Reply, Seen, World, add, world_with, world_with_legacy};

const URI: &str = "skill://pdf/SKILL.md";
const FORMS: &str = "skill://pdf/references/FORMS.md";
const SKILL_MD: &str = "---\nname: pdf\ndescription: Fill in forms\n---\n";

/// A server with one skill, whose `SKILL.md` and second file are what the cells hold.
#[derive(Default)]
struct Skills {
    pages: RefCell<Vec<Value>>,
    skill_md: RefCell<String>,
    forms: RefCell<String>,
}

fn entry() -> Value {
    json!({
        "uri": URI,
        "frontmatter": {"name": "pdf", "description": "Fill in forms"},
        "resources": [
            {"uri": URI, "size": 45,
                "digest": "sha256:e353b7998fb6a4ac14ab43f2d65125b02e222a487f85f31651621867f36b077e"},
            {"uri": FORMS, "size": 7,
                "digest": "sha256:5231e9fdc7e33a3f5b7b70abc690f99fa5e55bf0cd94042337583470964de937"},
        ],
    })
}

impl Skills {
    fn answer(&self, seen: &Seen) -> Reply {
        let params = &seen.body["params"];
        match seen.rpc().as_str() {
            "server/discover" => result(
                seen,
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {
                    "resources": {}, "extensions": {"io.modelcontextprotocol/skills": {}}}}),
            ),
            "skills/list" => {
                assert_eq!(seen.header("mcp-name"), None);
                let pages = self.pages.borrow();
                let page = params["cursor"]
                    .as_str()
                    .map_or(0, |at| at.parse().unwrap());
                result(seen, pages[page].clone())
            }
            "skills/get" if params["uri"] == URI => result(seen, json!({"skill": entry()})),
            "skills/get" if params["uri"] == "skill://other/SKILL.md" => {
                result(seen, json!({"skill": entry()}))
            }
            "skills/get" => rpc_error(400, seen, -32602, Value::Null),
            "resources/read" => {
                let uri = params["uri"].as_str().unwrap();
                let file = if uri == URI {
                    &self.skill_md
                } else {
                    &self.forms
                };
                let text = file.borrow().clone();
                result(seen, json!({"contents": [{"uri": uri, "text": text}]}))
            }
            _ => modern(seen),
        }
    }
}

fn world() -> (World, Rc<Skills>) {
    let skills = Rc::new(Skills::default());
    skills.pages.replace(vec![json!({"skills": [entry()]})]);
    skills.skill_md.replace(SKILL_MD.into());
    skills.forms.replace("Forms.\n".into());
    let peer = skills.clone();
    (world_with(move |seen| peer.answer(seen)), skills)
}

#[test]
fn listing_reads_no_file_and_loading_reads_one() {
    let (mut world, _) = world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.forget();
    let skills = world.run(mcp.list_skills("pier")).unwrap();
    assert_eq!(skills[0].name(), "pdf");
    assert_eq!(world.network.methods(), ["skills/list"]);

    let loaded = world.run(mcp.load_skill("pier", &skills[0])).unwrap();
    assert_eq!(loaded.text(), SKILL_MD);
    assert_eq!(world.network.methods(), ["skills/list", "resources/read"]);

    let file = world
        .run(mcp.read_skill_file(&loaded, "./references/FORMS.md"))
        .unwrap();
    assert!(file.json().get().contains("Forms."));
    assert_eq!(world.network.methods().len(), 3);
}

#[test]
fn what_was_not_listed_is_not_used() {
    let (mut world, server) = world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let skill = world.run(mcp.get_skill("pier", URI)).unwrap();
    server.skill_md.replace(SKILL_MD.replace("Fill", "Evil"));
    let error = world.run(mcp.load_skill("pier", &skill)).unwrap_err();
    assert!(
        matches!(error, Error::Skill(SkillMismatch::Digest { .. })),
        "{error}"
    );

    server.skill_md.replace(SKILL_MD.into());
    let loaded = world.run(mcp.load_skill("pier", &skill)).unwrap();
    server.forms.replace("Other.\n".into());
    world.network.forget();
    for path in ["../x", "references/NEW.md", "https://pier.example/"] {
        let error = world.run(mcp.read_skill_file(&loaded, path)).unwrap_err();
        assert!(
            matches!(error, Error::Skill(SkillMismatch::Unlisted { .. })),
            "{error}"
        );
    }
    assert!(world.network.methods().is_empty());
    let error = world
        .run(mcp.read_skill_file(&loaded, "references/FORMS.md"))
        .unwrap_err();
    assert!(
        matches!(error, Error::Skill(SkillMismatch::Digest { .. })),
        "{error}"
    );
}

#[test]
fn pages_are_walked_until_they_bring_nothing_new() {
    let other = |name: &str| {
        let mut other = entry();
        other["uri"] = json!(format!("skill://{name}/SKILL.md"));
        other["frontmatter"]["name"] = json!(name);
        other["resources"] = json!("dynamic");
        other
    };
    let (mut world, server) = world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    server.pages.replace(vec![
        json!({"skills": [entry(), {"uri": "skill://broken/SKILL.md"}], "nextCursor": "1"}),
        json!({"skills": [other("a"), entry()], "nextCursor": "2"}),
        json!({"skills": [other("a")], "nextCursor": "1"}),
    ]);
    let skills = world.run(mcp.list_skills("pier")).unwrap();
    let names: Vec<&str> = skills.iter().map(Skill::name).collect();
    assert_eq!(names, ["pdf", "a"]);

    server
        .pages
        .replace(vec![json!({"skills": [entry()], "nextCursor": 3})]);
    let error = world.run(mcp.list_skills("pier")).unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error}");
}

#[test]
fn a_skill_is_got_by_its_uri_or_not_at_all() {
    let (mut world, _) = world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    assert_eq!(world.run(mcp.get_skill("pier", URI)).unwrap().uri(), URI);
    let another = world.run(mcp.get_skill("pier", "skill://other/SKILL.md"));
    assert!(matches!(another, Err(Error::Protocol(_))));
    let unknown = world.run(mcp.get_skill("pier", "skill://none/SKILL.md"));
    assert!(matches!(unknown, Err(Error::Rpc(_))));
}

#[test]
fn a_server_that_declares_no_skills_is_not_asked_for_them() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.forget();
    assert!(world.run(mcp.list_skills("pier")).unwrap().is_empty());
    assert!(world.run(mcp.get_skill("pier", URI)).is_err());
    assert!(world.network.methods().is_empty());
    let unknown = world.run(mcp.list_skills("nobody"));
    assert!(matches!(unknown, Err(Error::UnknownServer(_))));
}
