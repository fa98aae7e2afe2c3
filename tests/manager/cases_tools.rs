//! Cases from public bug reports about MCP clients: tools, lists and what they return.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use workers_agents::{
    CallOptions, ConnectionState as S, Error, McpClientManager, OutputCheck, ServerFilter, ServerId,
};

use crate::support::mcp_server::{result, rpc_error, tool};
use crate::support::talker::{Talker, text_of};
use crate::support::{Reply, World, names, state};

fn tools_of(tools: Value) -> (World, McpClientManager, Rc<Talker>) {
    let server = Talker::legacy(json!({"tools": {"listChanged": true}}));
    server.set("tools/list", json!({ "tools": tools }));
    let (world, mcp) = server.world();
    (world, mcp, server)
}

fn problems(mcp: &McpClientManager) -> Vec<String> {
    let connection = mcp.connection("pier").unwrap();
    let problems = connection.problems.iter();
    problems.map(|problem| problem.error.describe()).collect()
}

#[test]
fn tl_01_one_bad_schema_among_good_tools() {
    let (mut world, mcp, _) = tools_of(json!([
        {"name": "good1", "inputSchema": {"type": "object"}},
        {"name": "bad", "inputSchema": {"type": "string"}},
        {"name": "bad2", "inputSchema": {"anyOf": [{"type": "object"}, {"type": "string"}]}},
        {"name": "good2", "inputSchema": {"type": "object", "properties": {}}},
    ]));
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(names(&mcp), ["good1", "good2"]);
    let problems = problems(&mcp);
    assert_eq!(problems.len(), 2);
    for (problem, name) in problems.iter().zip(["\"bad\"", "\"bad2\""]) {
        assert!(
            problem.contains(name) && problem.contains("inputSchema"),
            "{problem}"
        );
    }
    for name in ["good1", "good2"] {
        world.run(mcp.call_tool("pier", name, json!({}))).unwrap();
    }
    let before = world.count("tools/call");
    let error = world
        .run(mcp.call_tool("pier", "bad", json!({})))
        .unwrap_err();
    assert!(matches!(error, Error::UnusableTool { .. }), "{error:?}");
    assert_eq!(world.count("tools/call"), before);
}

#[test]
fn tl_03_a_tool_without_parameters_is_called_with_an_object_or_without_arguments() {
    let (mut world, mcp, _) = tools_of(json!([{"name": "now", "inputSchema": {"type": "object"}}]));
    assert_eq!(names(&mcp), ["now"]);
    for arguments in [json!({}), Value::Null] {
        world.run(mcp.call_tool("pier", "now", arguments)).unwrap();
    }
    let sent = world.sent("tools/call");
    assert_eq!(sent[0].body["params"]["arguments"], json!({}));
    assert!(sent[1].body["params"].get("arguments").is_none());
}

#[test]
fn tl_04_a_cursor_of_null_ends_a_list() {
    let server = Talker::legacy(json!({"tools": {}, "prompts": {}, "resources": {}}));
    server.set(
        "tools/list",
        json!({"tools": [tool("a")], "nextCursor": null}),
    );
    server.set(
        "prompts/list",
        json!({"prompts": [{"name": "p"}], "nextCursor": null}),
    );
    server.set(
        "resources/list",
        json!({"resources": [{"uri": "r://1", "name": "r"}], "nextCursor": null}),
    );
    server.set(
        "resources/templates/list",
        json!({"resourceTemplates": [{"uriTemplate": "r://{n}", "name": "t"}], "nextCursor": null}),
    );
    let (world, mcp) = server.world();
    let connection = mcp.connection("pier").unwrap();
    let counts = &connection.counts;
    assert_eq!(
        (
            counts.tools,
            counts.prompts,
            counts.resources,
            counts.resource_templates
        ),
        (1, 1, 1, 1)
    );
    assert!(connection.problems.is_empty());
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        assert_eq!(world.count(method), 1, "{method}");
    }
}

/// Serves pages by the cursor asked for: tool names, and the next cursor.
fn paged(pages: fn(Option<&str>) -> (Vec<&'static str>, Value)) -> (World, McpClientManager) {
    let server = Talker::legacy(json!({"tools": {}}));
    server.on("tools/list", move |seen| {
        let (tools, next) = pages(seen.body["params"]["cursor"].as_str());
        let tools: Vec<Value> = tools.into_iter().map(tool).collect();
        let mut page = json!({ "tools": tools });
        if !next.is_null() {
            page["nextCursor"] = next;
        }
        result(seen, page)
    });
    server.world()
}

#[test]
fn tl_05_an_empty_cursor_is_a_cursor() {
    let (world, mcp) = paged(|cursor| match cursor {
        None => (vec!["a"], json!("")),
        Some(_) => (vec!["b"], Value::Null),
    });
    assert_eq!(names(&mcp), ["a", "b"]);
    let cursors: Vec<Value> = world
        .sent("tools/list")
        .iter()
        .map(|seen| {
            seen.body["params"]
                .get("cursor")
                .cloned()
                .unwrap_or_else(|| json!("absent"))
        })
        .collect();
    assert_eq!(cursors, [json!("absent"), json!("")]);

    let (world, mcp) = paged(|_| (vec!["a", "b"], json!("")));
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(names(&mcp), ["a", "b"]);
    assert_eq!(world.count("tools/list"), 2);
}

const EIGHT: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

#[test]
fn tl_06_a_cursor_that_never_advances_is_left_with_a_warning() {
    let same: fn(Option<&str>) -> (Vec<&'static str>, Value) = |_| (EIGHT.to_vec(), json!("8"));
    let alternating: fn(Option<&str>) -> (Vec<&'static str>, Value) = |cursor| {
        let next = if cursor == Some("A") { "B" } else { "A" };
        (EIGHT.to_vec(), json!(next))
    };
    for pages in [same, alternating] {
        let (world, mcp) = paged(pages);
        assert_eq!(state(&mcp), S::Ready);
        assert_eq!(names(&mcp), EIGHT);
        assert!(world.count("tools/list") <= 3);
        let problems = problems(&mcp);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("tools/list"), "{problems:?}");
    }
}

#[test]
fn tl_08_an_empty_page_is_not_the_end() {
    let (_, mcp) = paged(|cursor| match cursor {
        None => (vec!["a", "b"], json!("2")),
        Some("2") => (vec![], json!("3")),
        Some(_) => (vec!["c", "d"], Value::Null),
    });
    assert_eq!(names(&mcp), ["a", "b", "c", "d"]);
    assert!(problems(&mcp).is_empty());
}

#[test]
fn tl_12_a_list_that_causes_its_own_notice_is_not_loaded_for_ever() {
    let server = Talker::legacy(json!({"tools": {"listChanged": true}}));
    let (mut world, mcp) = server.world();
    let told = Rc::new(Cell::new(0));
    let count = told.clone();
    mcp.on_server_state_changed(move || count.set(count.get() + 1))
        .detach();
    let mut heard = 0;
    server
        .stream_of_its_own()
        .notify("notifications/tools/list_changed", json!({}));
    for _ in 0..6_000 {
        world.advance(Duration::from_millis(10));
        let lists = world.count("tools/list");
        if lists > heard {
            heard = lists;
            for stream in server.standing() {
                stream.notify("notifications/tools/list_changed", json!({}));
            }
        }
    }
    assert!((2..20).contains(&heard), "{heard} lists in a minute");
    assert_eq!(told.get(), 0, "nothing changed");
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
}

#[test]
fn tl_18_names_without_any_ascii_letter_stay_apart() {
    assert!(!ServerId::normalize("数据库").as_str().is_empty());
    let (mut world, mcp, _) = tools_of(json!([tool("查询"), tool("查詢"), tool("🔍"), tool("")]));
    assert_eq!(names(&mcp), ["查询", "查詢", "🔍"]);
    for name in names(&mcp) {
        world.run(mcp.call_tool("pier", &name, json!({}))).unwrap();
    }
    let called: Vec<Value> = world
        .sent("tools/call")
        .iter()
        .map(|seen| seen.body["params"]["name"].clone())
        .collect();
    assert_eq!(called, ["查询", "查詢", "🔍"]);
    let problems = problems(&mcp);
    assert!(
        problems.len() == 1 && problems[0].contains("empty"),
        "{problems:?}"
    );
}

#[test]
fn tl_18_names_of_the_modern_era_go_into_a_header() {
    let server = Talker::modern(json!({"tools": {}}));
    server.set("tools/list", json!({"tools": [tool("查询"), tool("🔍")]}));
    let (mut world, mcp) = server.world();
    for name in names(&mcp) {
        world.run(mcp.call_tool("pier", &name, json!({}))).unwrap();
    }
    let headers: Vec<String> = world
        .sent("tools/call")
        .iter()
        .map(|seen| seen.header("mcp-name").unwrap().to_owned())
        .collect();
    assert!(
        headers.iter().all(|name| name.starts_with("=?base64?")),
        "{headers:?}"
    );
    assert_ne!(headers[0], headers[1]);
}

#[test]
fn tl_21_the_title_is_the_own_one_then_the_annotated_one_then_the_name() {
    let (_, mcp, _) = tools_of(json!([
        {"name": "a", "title": "T", "annotations": {"title": "A"}, "inputSchema": {"type": "object"}},
        {"name": "b", "annotations": {"title": "A"}, "inputSchema": {"type": "object"}},
        {"name": "c", "inputSchema": {"type": "object"}},
        {"name": "d", "title": 5, "annotations": {"title": null}, "inputSchema": {"type": "object"}},
    ]));
    let titles: Vec<String> = mcp
        .list_tools(&ServerFilter::all())
        .iter()
        .map(|tool| tool.item.display_name())
        .collect();
    assert_eq!(titles, ["T", "A", "c", "d"]);
}

#[test]
fn tl_23_content_of_unknown_kinds_passes() {
    let content = json!([
        {"type": "text", "text": "hello"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "x://1", "name": "n"},
        {"type": "hologram", "data": "?"},
    ]);
    for server in [
        Talker::legacy(json!({"tools": {}})),
        Talker::modern(json!({"tools": {}})),
    ] {
        server.set("tools/call", json!({ "content": content }));
        let (mut world, mcp) = server.world();
        let result = world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
        assert_eq!(json!(result.content()), content);
        assert_eq!(result.text(), "hello");
        assert!(!result.is_error());
    }
}

/// A tool whose output is an object with the integer `a` and nothing else; the test says what comes.
fn strict() -> (Rc<Talker>, Rc<RefCell<Value>>) {
    let server = Talker::legacy(json!({"tools": {}}));
    server.set(
        "tools/list",
        json!({"tools": [{"name": "count", "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"a": {"type": "integer"}},
            "required": ["a"], "additionalProperties": false}}]}),
    );
    let output = Rc::new(RefCell::new(json!({})));
    let content = output.clone();
    server.on("tools/call", move |seen| {
        result(seen, content.borrow().clone())
    });
    (server, output)
}

fn assert_strict(world: &mut World, mcp: &McpClientManager, output: &RefCell<Value>) {
    for (content, is_valid) in [
        (
            json!({"content": [], "structuredContent": {"a": 1}, "_meta": {"x": 1}}),
            true,
        ),
        (
            json!({"content": [], "structuredContent": {"a": 1, "b": 2}}),
            false,
        ),
        (
            json!({"content": [], "structuredContent": {"a": "1"}}),
            false,
        ),
        (json!({"content": []}), false),
        (json!({"content": [], "isError": true}), true),
    ] {
        output.replace(content.clone());
        let outcome = world.run(mcp.call_tool("pier", "count", json!({})));
        match outcome {
            Ok(result) => assert!(is_valid && text_of(&result) == content, "{content}"),
            Err(error) => {
                assert!(!is_valid, "{content}: {error:?}");
                assert!(matches!(error, Error::InvalidOutput { .. }), "{error:?}");
            }
        }
    }
}

#[test]
fn tl_25_output_is_checked_the_same_before_and_after_a_wake() {
    let (server, output) = strict();
    let (mut world, mcp) = server.world();
    assert_strict(&mut world, &mcp, &output);
    let mcp = world.wake();
    assert_strict(&mut world, &mcp, &output);
    output.replace(json!({"content": [], "structuredContent": {"a": 1}}));
    let result = world
        .run(mcp.call_tool("pier", "count", json!({})))
        .unwrap();
    assert_eq!(
        mcp.check_output("pier", "count", &result).unwrap(),
        OutputCheck::Valid
    );
    assert_eq!(state(&mcp), S::Ready);
}

#[test]
fn tl_25_a_call_right_after_a_wake_waits_for_the_list_it_is_checked_against() {
    let (server, output) = strict();
    let (mut world, _) = server.world();
    let (open, gate) = futures::channel::oneshot::channel();
    let gate = RefCell::new(Some(gate));
    server.on("tools/list", move |seen| {
        let list = json!({"tools": [{"name": "count", "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object", "required": ["a"]}}]});
        match gate.borrow_mut().take() {
            Some(gate) => Reply::Later(gate, Box::new(result(seen, list))),
            None => result(seen, list),
        }
    });
    output.replace(json!({"content": [], "structuredContent": {"b": 1}}));
    // Too large to be stored, say.
    world.catalogs.rows.borrow_mut().clear();
    let mcp = world.wake();
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "count", json!({})).await });
    assert!(call.outcome().is_none());
    open.send(()).unwrap();
    world.settle();
    let outcome = call.outcome().unwrap();
    assert!(
        matches!(outcome, Err(Error::InvalidOutput { .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_list_that_hangs_after_a_wake_does_not_hold_a_call_for_long() {
    let (server, output) = strict();
    let (mut world, _) = server.world();
    server.on("tools/list", |_| Reply::Silence);
    output.replace(json!({"content": []}));
    for is_stored in [true, false] {
        if !is_stored {
            world.catalogs.rows.borrow_mut().clear();
        }
        let mcp = world.wake();
        let calling = mcp.clone();
        let call = world.start(async move { calling.call_tool("pier", "count", json!({})).await });
        world.advance(Duration::from_secs(5));
        call.outcome().unwrap().unwrap();
    }
}

#[test]
fn a_tool_that_changed_while_the_object_slept_is_judged_by_what_it_is_now() {
    let (server, output) = strict();
    let (mut world, _) = server.world();
    server.on("tools/list", |seen| {
        let list = json!({"tools": [{"name": "count", "inputSchema": {"type": "object"}}]});
        result(seen, list)
    });
    output.replace(json!({"content": []}));
    let mcp = world.wake();
    world
        .run(mcp.call_tool("pier", "count", json!({})))
        .unwrap();

    // And the other way round: what was right before is not any more.
    let (server, output) = strict();
    let (mut world, _) = server.world();
    output.replace(json!({"content": [], "structuredContent": {"wrong": 1}}));
    let mcp = world.wake();
    let outcome = world.run(mcp.call_tool("pier", "count", json!({})));
    assert!(
        matches!(outcome, Err(Error::InvalidOutput { .. })),
        "{outcome:?}"
    );
}

#[test]
fn tl_26_schemas_of_every_kind_break_nothing() {
    let many: Vec<String> = (0..5_000).map(|number| format!("v{number}")).collect();
    let outputs = [
        (
            "tree",
            json!({"$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}},
            "$ref": "#/$defs/n"}),
            json!({"next": {"next": {}}}),
        ),
        (
            "old",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "definitions": {"s": {"type": "string"}}, "properties": {"a": {"$ref": "#/definitions/s"}}}),
            json!({"a": "x"}),
        ),
        (
            "remote",
            json!({"type": "object", "properties": {"a": {"$ref": "http://m2.example/s.json"}}}),
            json!({"a": 1}),
        ),
        (
            "choice",
            json!({"type": "object", "properties": {"a": {"enum": many}}}),
            json!({"a": "v4999"}),
        ),
        (
            "pattern",
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}),
            json!({"a": "a".repeat(50_000)}),
        ),
        ("self", json!({"$ref": "#"}), json!({})),
        (
            "broken",
            json!({"type": "nonsense", "properties": 5}),
            json!({}),
        ),
        (
            "dialect",
            json!({"$schema": "urn:none", "type": "object"}),
            json!({}),
        ),
    ];
    let tools: Vec<Value> = outputs
        .iter()
        .map(|(name, schema, _)| {
            // As input schemas they have a root of type object.
            let mut input = schema.clone();
            input["type"] = json!("object");
            json!({"name": name, "inputSchema": input, "outputSchema": schema})
        })
        .collect();
    let (mut world, mcp, server) = tools_of(json!(tools));
    let fetched = Rc::new(Cell::new(false));
    let is_fetched = fetched.clone();
    world.network.serve("http://m2.example/s.json", move |_| {
        is_fetched.set(true);
        Reply::Json(200, json!({"type": "string"}))
    });
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(names(&mcp).len(), outputs.len());
    for (name, _, content) in &outputs {
        let answer = json!({"content": [], "structuredContent": content});
        server.set("tools/call", answer.clone());
        let outcome = world.run(mcp.call_tool("pier", name, json!({})));
        assert_eq!(text_of(&outcome.expect(name)), answer, "{name}");
    }
    // One that backtracks for ever elsewhere.
    let hard =
        json!({"content": [], "structuredContent": {"a": format!("{}!", "a".repeat(50_000))}});
    server.set("tools/call", hard);
    let outcome = world.run(mcp.call_tool("pier", "pattern", json!({})));
    assert!(!matches!(outcome, Err(Error::Timeout { .. })));
    assert!(!fetched.get());
    assert_eq!(state(&mcp), S::Ready);
}

#[test]
fn tl_27_schemas_reach_the_user_as_they_were() {
    let schema = concat!(
        r#"{"type":"object","x-foo":{"b":1,"a":2},"description":"line one\nline two","#,
        r#""properties":{"z":{"type":["string","null"]},"y":{"type":"object","properties":"#,
        r#"{"k":{"enum":["b","a"],"default":"b"}}},"x":{"anyOf":[{"type":"integer","minimum":0},{"type":"null"}]},"#,
        r#""a":{"type":"number","default":1.50}},"required":["z"]}"#
    );
    let server = Talker::legacy(json!({"tools": {}}));
    server.on("tools/list", move |seen| {
        let id = &seen.body["id"];
        let tools = format!(r#"[{{"name":"t","inputSchema":{schema},"outputSchema":{schema}}}]"#);
        Reply::typed(
            200,
            "application/json",
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":{tools}}}}}"#),
        )
    });
    let (mut world, mcp) = server.world();
    let wake = world.wake();
    world.settle();
    for mcp in [mcp, wake] {
        let tools = mcp.list_tools(&ServerFilter::all());
        assert_eq!(tools[0].item.input_schema().unwrap().get(), schema);
        assert_eq!(tools[0].item.output_schema().unwrap().get(), schema);
        let listed = serde_json::to_string(&tools[0]).unwrap();
        assert!(
            listed.contains(&format!(r#""inputSchema":{schema}"#)),
            "{listed}"
        );
    }
}

#[test]
fn tl_32_odd_progress_costs_no_result() {
    let server = Talker::legacy(json!({"tools": {}}));
    server.live("tools/call");
    let (mut world, mcp) = server.world();
    let heard = Rc::new(RefCell::new(Vec::new()));
    let (calling, listener) = (mcp.clone(), heard.clone());
    let call = world.start(async move {
        let options = CallOptions::new()
            .on_progress(move |progress| listener.borrow_mut().push(progress.progress));
        calling
            .call_tool_with("pier", "echo", json!({}), &options)
            .await
    });
    let talk = server.talk("tools/call");
    let token = talk.seen.body["params"]["_meta"]["progressToken"].clone();
    for params in [
        json!({"progressToken": token, "progress": 0.5}),
        json!({"progressToken": token, "progress": 3, "total": null}),
        json!({"progressToken": token, "progress": 3, "total": 2}),
        json!({"progressToken": token, "progress": "4", "total": 5}),
        json!({"progressToken": "unknown", "progress": 4}),
        json!({"progressToken": null, "progress": 4}),
        json!({"progressToken": token, "progress": 1e308, "message": {"a": 1}}),
        json!({"progressToken": token}),
        json!([]),
        Value::Null,
    ] {
        talk.notify("notifications/progress", params);
    }
    talk.answer(json!({"content": []}));
    world.settle();
    call.outcome().unwrap().unwrap();
    assert_eq!(*heard.borrow(), [0.5, 3.0, 3.0, 1e308]);
}

#[test]
fn tl_33_what_was_not_offered_is_refused_and_pings_are_answered() {
    let server = Talker::legacy(json!({"tools": {}}));
    server.live("tools/call");
    server.on("ping", |seen| rpc_error(200, seen, -32601, Value::Null));
    let (mut world, mcp) = server.world();
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    let talk = server.talk("tools/call");
    talk.ask(json!("r-1"), "roots/list", json!({}));
    talk.ask(
        json!("s-1"),
        "sampling/createMessage",
        json!({"messages": [], "maxTokens": 1}),
    );
    talk.ask(json!("f-1"), "foo/bar", json!({}));
    talk.ask(json!("p-1"), "ping", json!({}));
    talk.ask(json!(7), "ping", json!({}));
    talk.ask(json!("7"), "ping", Value::Null);
    world.settle();
    let mut answers = world.answers();
    answers.sort_by_key(|answer| answer["id"].to_string());
    let ids: Vec<Value> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(json!(ids), json!(["7", "f-1", "p-1", "r-1", "s-1", 7]));
    for answer in &answers {
        match answer["id"].as_str() {
            Some("r-1" | "s-1" | "f-1") => assert_eq!(answer["error"]["code"], -32601),
            _ => assert_eq!(answer["result"], json!({})),
        }
    }
    talk.answer(json!({"content": []}));
    world.settle();
    call.outcome().unwrap().unwrap();
    // A server that does not know our ping is there all the same.
    world.run(mcp.ping("pier")).unwrap();
    assert_eq!(state(&mcp), S::Ready);
}

#[test]
fn wk_10_a_fresh_object_has_nothing_and_says_so() {
    let mut world = World::new();
    let mcp = world.wake();
    assert!(mcp.list_servers().unwrap().is_empty());
    assert!(names(&mcp).is_empty() && mcp.known_tasks().unwrap().is_empty());
    assert!(!world.run(mcp.remove_server("nobody")).unwrap());
    let outcomes = [
        world.run(mcp.call_tool("nobody", "echo", json!({}))).err(),
        world.run(mcp.get_prompt("nobody", "p", ())).err(),
        world.run(mcp.read_resource("nobody", "r://1")).err(),
        world.run(mcp.connect_to_server("nobody")).err(),
        world.run(mcp.close_connection("nobody")).err(),
        world.run(mcp.subscribe_resource("nobody", "r://1")).err(),
        world.run(mcp.ping("nobody")).err(),
        world.run(mcp.task("nobody", "t")).err(),
        world.run(mcp.cancel_task("nobody", "t")).err(),
    ];
    for outcome in outcomes {
        assert!(
            matches!(outcome, Some(Error::UnknownServer(_))),
            "{outcome:?}"
        );
    }
}
