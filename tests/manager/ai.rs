//! Tools for models: names, caching, pins, calls, and the loop.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use workers_agents::ai::{
    AiError, AiOutput, Approval, ChatMessage, Ended, FinishReason, GenerateOptions, ModelError,
    NameChange, OpenAiModel, PinChange, ToolChange, ToolPins, WorkersAiModel, generate_text,
};
use workers_agents::{AiTool, McpClientManager, ServerFilter, UrlPolicy};

use crate::support::mcp_server::{LegacyServer, tool};
use crate::support::{MemoryHttp, Reply, Seen, URL, World, add, register, world_with_legacy};

const MODEL: &str = "https://model.example/v1/chat/completions";
const KEY: &str = "sk-secret";

fn world_with_tools(tools: Value) -> (World, McpClientManager, Rc<LegacyServer>) {
    let (mut world, server) = world_with_legacy();
    server.set("tools/list", json!({ "tools": tools }));
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    (world, mcp, server)
}

fn all() -> ServerFilter {
    ServerFilter::all()
}

fn relist(world: &mut World, mcp: &McpClientManager, server: &LegacyServer, tools: Value) {
    server.set("tools/list", json!({ "tools": tools }));
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
}

#[test]
fn a_second_set_of_a_thousand_tools_converts_nothing() {
    let described = |n: usize, text: &str| json!({"name": format!("t{n}"), "description": text, "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}});
    let mut tools: Vec<Value> = (0..1_000).map(|n| described(n, "same")).collect();
    let (mut world, mcp, server) = world_with_tools(json!(tools));
    let set = mcp.ai_tools(&all());
    assert_eq!((set.tools().len(), set.conversions()), (1_000, 0));
    let first = set.to_openai_chat(true);
    assert_eq!(set.conversions(), 1_000);
    let again = mcp.ai_tools(&all());
    assert!(std::ptr::eq(again.tools(), set.tools()));
    assert!(std::ptr::eq(
        again.to_openai_chat(true).json(),
        first.json()
    ));
    assert_eq!(again.conversions(), 1_000);
    // Listed anew and the same: nothing. One differs: that one.
    relist(&mut world, &mcp, &server, json!(tools));
    let _ = mcp.ai_tools(&all()).to_openai_chat(true);
    assert_eq!(set.conversions(), 1_000);
    tools[7] = described(7, "other");
    relist(&mut world, &mcp, &server, json!(tools));
    let changed = mcp.ai_tools(&all());
    let _ = changed.to_openai_responses(true);
    assert_eq!(changed.conversions(), 1_001);
    assert_eq!(changed.get("tool_pier_t7").unwrap().description(), "other");
}

#[test]
fn tools_of_several_servers_keep_their_names_apart_and_are_called_by_them() {
    let (mut world, mcp, _) = world_with_tools(json!([tool("b_c"), tool("查询"), tool("plain")]));
    let other = "https://other.example/mcp";
    let server = LegacyServer::new();
    server.set("tools/list", json!({"tools": [tool("plain"), tool("c")]}));
    world.network.serve(other, move |seen| server.answer(seen));
    register(&mut world, &mcp, "pier_b", other);
    world.run(mcp.connect_to_server("pier_b")).unwrap();
    world
        .run(mcp.discover_if_connected("pier_b", None))
        .unwrap();
    let set = mcp.ai_tools(&all());
    let names: HashSet<_> = set.tools().iter().map(AiTool::name).collect();
    assert_eq!(names.len(), 5);
    assert!(set.get("tool_pier_b_c").is_none(), "both want it");
    let renamed: Vec<_> = set.tools().iter().filter_map(AiTool::renamed).collect();
    let (collision, characters) = (NameChange::Collision, NameChange::Characters);
    assert_eq!(renamed, [collision, characters, collision]);
    let reports = set.to_anthropic().reports().to_vec();
    let told = reports
        .iter()
        .filter(|report| matches!(report.change, ToolChange::Renamed(_)));
    assert_eq!(told.count(), 3);
    for tool in set.tools() {
        world.network.forget();
        world.run(set.call(tool.name(), json!({"n": 1}))).unwrap();
        let seen = world.network.seen.borrow().last().cloned().unwrap();
        assert_eq!(seen.body["params"]["name"], tool.tool().name());
        let url = if tool.server_id().as_str() == "pier" {
            URL
        } else {
            other
        };
        assert_eq!(seen.url, url);
    }
    // Alone, the tool has its plain name.
    let alone = mcp.ai_tools(&all().server_id("pier"));
    assert!(alone.get("tool_pier_b_c").is_some());
    let some = mcp.ai_tools(&all()).only("pier", ["plain"]);
    assert_eq!(some.tools().len(), 3);
    assert_eq!(some.instructions().len(), 2);
}

#[test]
fn arguments_that_stand_for_nothing_are_not_sent() {
    let schema = json!({"type": "object", "properties": {
        "text": {"type": "string"}, "maybe": {"type": ["string", "null"]},
        "inner": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "list": {"type": "array", "items": {"$ref": "#/properties/inner"}},
        "must": {"type": "string"},
    }, "required": ["must"]});
    let (mut world, mcp, _) = world_with_tools(json!([{"name": "t", "inputSchema": schema}]));
    let set = mcp.ai_tools(&all());
    let mut received = |arguments: Value| {
        world.network.forget();
        let outcome = world.run(set.call("tool_pier_t", arguments));
        let seen = world.network.seen.borrow().last().cloned();
        outcome.map(|_| seen.unwrap().body["params"]["arguments"].clone())
    };
    let given = json!({"text": null, "maybe": null, "inner": {"n": null}, "list": [{"n": null}, {"n": 1}], "must": null, "unknown": null});
    assert_eq!(
        received(given).unwrap(),
        json!({"maybe": null, "inner": {}, "list": [{}, {"n": 1}], "must": null, "unknown": null})
    );
    assert_eq!(received(Value::Null).unwrap(), json!({}));
    assert!(matches!(
        received(json!([1])),
        Err(AiError::BadArguments(_))
    ));
    let unknown = world.run(set.call("tool_pier_x", json!({})));
    assert!(matches!(unknown, Err(AiError::UnknownTool(_))));
}

#[test]
fn only_approved_definitions_are_given_to_models() {
    let of = |name: &str, text: &str, destructive: bool| json!({"name": name, "description": text, "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": destructive}});
    let first = json!([of("a", "one", false), of("b", "two", false)]);
    let (mut world, mcp, server) = world_with_tools(first.clone());
    let mut pins = ToolPins::default();
    pins.approve_all(&mcp.ai_tools(&all()));
    let stored = serde_json::to_string(&pins).unwrap();
    let mut pins: ToolPins = serde_json::from_str(&stored).unwrap();
    let set = mcp.ai_tools(&all()).pinned(&pins);
    assert_eq!((set.tools().len(), set.withheld().len()), (2, 0));
    // Another order of members is the same; another text, hint or schema is not.
    let changed = json!([
        json!({"inputSchema": {"type": "object"}, "annotations": {"destructiveHint": false}, "name": "a", "description": "one"}),
        of("b", "two", true),
        of("c", "new", false),
    ]);
    relist(&mut world, &mcp, &server, changed);
    let now = mcp.ai_tools(&all()).pinned(&pins);
    let kept: Vec<_> = now.tools().iter().map(AiTool::name).collect();
    assert_eq!(kept, ["tool_pier_a"]);
    let why: Vec<_> = now
        .withheld()
        .iter()
        .map(|it| (it.tool.tool().name(), it.why))
        .collect();
    assert_eq!(why, [("b", PinChange::Changed), ("c", PinChange::New)]);
    assert!(!now.to_anthropic().json().get().contains("tool_pier_b"));
    assert!(now.withheld()[0].tool.annotations().may_destroy());
    // The set from before is checked at the call.
    let late = world.run(set.call("tool_pier_b", json!({})));
    assert!(matches!(late, Err(AiError::ToolChanged(_))));
    pins.approve_all(&now);
    assert_eq!(mcp.ai_tools(&all()).pinned(&pins).tools().len(), 3);
    pins.forget_server("pier");
    assert_eq!(mcp.ai_tools(&all()).pinned(&pins).tools().len(), 0);
}

#[test]
fn texts_of_servers_are_cleaned_and_cut() {
    let long = format!("Adds.\u{e0049}\u{202e}{}", "x".repeat(5_000));
    let (_world, mcp, _) = world_with_tools(json!([
        {"name": "a", "description": long, "inputSchema": {"type": "object"}},
        {"name": "b", "title": "Bee", "inputSchema": {"type": "object", "description": "y".repeat(300_000)}},
    ]));
    let set = mcp.ai_tools(&all());
    let text = set.get("tool_pier_a").unwrap().description().to_owned();
    assert!(text.starts_with("Adds.xxx") && text.ends_with("..."));
    assert_eq!(text.chars().count(), 1_024);
    assert_eq!(set.get("tool_pier_b").unwrap().description(), "Bee");
    let definitions = set.to_workers_ai();
    let changes: Vec<_> = definitions
        .reports()
        .iter()
        .map(|report| &report.change)
        .collect();
    assert!(matches!(
        changes[..],
        [ToolChange::DescriptionCut, ToolChange::SchemaReplaced(_)]
    ));
    let all: Value = serde_json::from_str(definitions.json().get()).unwrap();
    let permissive = json!({"type": "object", "properties": {}, "additionalProperties": true});
    assert_eq!(all[1]["function"]["parameters"], permissive);
    assert_eq!(set.instructions()[0].1, "be kind");
}

/// A model behind HTTP that answers by script.
fn model(world: &World, script: impl Fn(&Seen) -> Reply + 'static) -> OpenAiModel {
    world.network.serve(MODEL, script);
    let http = Rc::new(MemoryHttp(world.network.clone()));
    let model = OpenAiModel::with_policy(http, MODEL, "m", &UrlPolicy::default());
    model.unwrap().key(KEY).unwrap()
}

fn wants(calls: &[(&str, &str)]) -> Reply {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(name, arguments)| json!({"type": "function", "function": {"name": name, "arguments": arguments}}))
        .collect();
    Reply::Json(
        200,
        json!({"choices": [{"message": {"content": null, "tool_calls": calls}, "finish_reason": "tool_calls"}]}),
    )
}

fn says(text: &str) -> Reply {
    Reply::Json(
        200,
        json!({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}),
    )
}

#[test]
fn calls_run_side_by_side_within_their_limits() {
    let (mut world, mcp, server) = world_with_tools(json!([tool("echo")]));
    let number = Cell::new(0);
    let model = model(&world, move |_| {
        number.set(number.get() + 1);
        match number.get() {
            1 => wants(&[("tool_pier_echo", r#"{"n":1}"#); 6]),
            _ => says("done"),
        }
    });
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "tools/call" => Reply::Silence,
            _ => server.answer(seen),
        });
    let set = mcp.ai_tools(&all());
    let options = GenerateOptions::prompt("go")
        .parallel(3)
        .max_calls(5)
        .tool_timeout(Duration::from_secs(9));
    world.network.most_open.set(0);
    let running = world.start(async move { generate_text(&model, &set, options).await });
    assert!(world.network.open.get() >= 3);
    world.advance(Duration::from_secs(9));
    world.advance(Duration::from_secs(9));
    let answer = running.outcome().unwrap().unwrap();
    assert_eq!(answer.text, "done");
    assert_eq!(answer.ended, Ended::Done(FinishReason::Stop));
    let calls = &answer.steps[0].calls;
    assert!(
        calls[..5]
            .iter()
            .all(|(_, output)| output.to_text().contains("within 9000 ms")),
        "{calls:?}"
    );
    assert_eq!(
        calls[5].1.to_text(),
        "Error: not called: too many calls at once"
    );
    let ids: HashSet<_> = calls.iter().map(|(call, _)| &call.id).collect();
    assert_eq!(ids.len(), 6);
    let most = world.network.most_open.get();
    assert!((3..=8).contains(&most), "{most} at once");
}

#[test]
fn the_loop_ends_when_it_is_told_to() {
    let (mut world, mcp, _) = world_with_tools(json!([tool("echo")]));
    let set = mcp.ai_tools(&all());
    let model = model(&world, |_| wants(&[("tool_pier_echo", "{}")]));
    let answer = world.run(generate_text(
        &model,
        &set,
        GenerateOptions::prompt("go").max_steps(3),
    ));
    let answer = answer.unwrap();
    assert_eq!((answer.ended, answer.steps.len()), (Ended::MaxSteps, 3));
    assert_eq!(answer.messages.len(), 1 + 3 * 2);
    let options = GenerateOptions::messages(answer.messages).stop_when(|steps| steps.len() == 2);
    let answer = world.run(generate_text(&model, &set, options)).unwrap();
    assert_eq!((answer.ended, answer.steps.len()), (Ended::Stopped, 2));
    let small = GenerateOptions::messages(vec![ChatMessage::user("x".repeat(100))]).max_bytes(99);
    let outcome = world.run(generate_text(&model, &set, small));
    assert!(matches!(outcome, Err(AiError::TooLarge(99))));
}

#[test]
fn approvals_are_asked_for_one_after_the_other() {
    let (mut world, mcp, _) = world_with_tools(json!([tool("echo"), tool("add")]));
    let set = mcp.ai_tools(&all());
    let number = Cell::new(0);
    let model = model(&world, move |_| {
        number.set(number.get() + 1);
        match number.get() {
            1 => wants(&[("tool_pier_add", r#"{"a":1}"#), ("tool_pier_echo", "")]),
            _ => says("done"),
        }
    });
    let asked: Rc<RefCell<Vec<String>>> = Rc::default();
    let heard = asked.clone();
    let options = GenerateOptions::prompt("go").approve(move |call| {
        let name = call.tool.tool().name().to_owned();
        heard
            .borrow_mut()
            .push(format!("{name} {}", call.arguments.get()));
        async move {
            match name.as_str() {
                "echo" => Approval::Allow,
                _ => Approval::Deny("not now".into()),
            }
        }
    });
    world.network.forget();
    let answer = world.run(generate_text(&model, &set, options)).unwrap();
    assert_eq!(*asked.borrow(), [r#"add {"a":1}"#, "echo {}"]);
    assert_eq!(
        answer.steps[0].calls[0].1.to_text(),
        "Error: not called: not now"
    );
    let calls = world.network.methods();
    assert_eq!(calls.iter().filter(|name| *name == "tools/call").count(), 1);
}

#[test]
fn what_is_dropped_or_late_is_given_up() {
    let (mut world, mcp, server) = world_with_tools(json!([tool("echo")]));
    let asked = Rc::new(Cell::new(0));
    let number = asked.clone();
    let slow = model(&world, move |_| {
        number.set(number.get() + 1);
        Reply::Silence
    });
    let set = mcp.ai_tools(&all());
    let options = GenerateOptions::prompt("go").model_timeout(Duration::from_secs(5));
    let (model_of_late, tools) = (slow.clone(), set.clone());
    let late = world.start(async move { generate_text(&model_of_late, &tools, options).await });
    let open = world.network.open.get();
    world.advance(Duration::from_secs(5));
    assert!(matches!(late.outcome(), Some(Err(AiError::Timeout { .. }))));
    assert_eq!(world.network.open.get(), open - 1);
    // All of it has a limit, whatever takes the time.
    let options = GenerateOptions::prompt("go").timeout(Duration::from_secs(3));
    let (model_of_all, tools) = (slow, set.clone());
    let late = world.start(async move { generate_text(&model_of_all, &tools, options).await });
    world.advance(Duration::from_secs(3));
    assert!(matches!(late.outcome(), Some(Err(AiError::Timeout { .. }))));
    assert_eq!(asked.get(), 2);
    // A call that is under way is taken back with the loop.
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "tools/call" => Reply::Silence,
            _ => server.answer(seen),
        });
    let quick = model(&world, |_| wants(&[("tool_pier_echo", "{}")]));
    let mut work = Box::pin(generate_text(&quick, &set, GenerateOptions::prompt("go")));
    for _ in 0..20 {
        assert!(futures::FutureExt::now_or_never(work.as_mut()).is_none());
        world.settle();
    }
    assert!(world.network.methods().contains(&"tools/call".to_owned()));
    drop(work);
    world.settle();
    let methods = world.network.methods();
    assert!(
        methods.contains(&"notifications/cancelled".to_owned()),
        "{methods:?}"
    );
}

#[test]
fn a_model_that_refuses_or_makes_no_sense_is_reported_without_the_key() {
    let (mut world, mcp, _) = world_with_tools(json!([tool("echo")]));
    let set = mcp.ai_tools(&all());
    let mut outcome = |reply: fn() -> Reply| {
        let model = model(&world, move |_| reply());
        assert!(!format!("{model:?}").contains(KEY));
        let error = world.run(generate_text(&model, &set, GenerateOptions::prompt("go")));
        let error = error.unwrap_err();
        assert!(!format!("{error:?} {error}").contains(KEY));
        match error {
            AiError::Model(error) => error,
            other => panic!("{other:?}"),
        }
    };
    let refused = outcome(|| {
        Reply::typed(
            429,
            "application/json",
            format!(r#"{{"error":{{"message":"slow down, {KEY}"}}}}"#),
        )
        .with("retry-after", "7")
    });
    let message = "slow down, ...".to_owned();
    assert_eq!(
        refused,
        ModelError::Status {
            status: 429,
            message,
            retry_after: Some(7)
        }
    );
    assert!(matches!(
        outcome(|| Reply::Refused),
        ModelError::Unreachable(_)
    ));
    assert!(matches!(
        outcome(|| Reply::typed(200, "text/html", "<html>")),
        ModelError::Unreadable(_)
    ));
    assert!(matches!(
        outcome(|| Reply::events("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n")),
        ModelError::Unreadable(_)
    ));
    let redirected = outcome(|| Reply::status(307).with("location", "https://elsewhere.example/"));
    assert!(matches!(redirected, ModelError::Status { status: 307, .. }));
    assert!(matches!(
        outcome(|| Reply::typed(200, "application/json", vec![b' '; 5 << 20])),
        ModelError::TooLarge(_)
    ));
    let http = Rc::new(MemoryHttp(world.network.clone()));
    assert!(OpenAiModel::new(http, "http://169.254.169.254/", "m").is_err());
}

struct Scripted;

#[async_trait(?Send)]
impl workers_agents::ai::AiBinding for Scripted {
    async fn run(&self, model: &str, inputs: &str, options: &str) -> Result<AiOutput, ModelError> {
        assert_eq!((model, options), ("@cf/m", r#"{"gateway":{"id":"g"}}"#));
        let inputs: Value = serde_json::from_str(inputs).unwrap();
        assert_eq!(inputs["temperature"], 0);
        let answer = match inputs["messages"].as_array().unwrap().last().unwrap() {
            last if last["role"] == "tool" => json!({"response": last["content"]}),
            _ => {
                json!({"response": "", "tool_calls": [{"name": "tool_pier_echo", "arguments": {"n": 1}}]})
            }
        };
        Ok(AiOutput::Json(answer.to_string()))
    }
}

#[test]
fn models_of_workers_ai_use_tools_too() {
    let (mut world, mcp, _) = world_with_tools(json!([tool("echo")]));
    let model = WorkersAiModel::new(Rc::new(Scripted), "@cf/m");
    let model = model
        .parameter("temperature", 0)
        .option("gateway", json!({"id": "g"}));
    let told: Rc<RefCell<String>> = Rc::default();
    let heard = told.clone();
    let options =
        GenerateOptions::prompt("go").on_text(move |text| heard.borrow_mut().push_str(text));
    let answer = world
        .run(generate_text(&model, &mcp.ai_tools(&all()), options))
        .unwrap();
    assert_eq!(answer.text, r#"{"n":1}"#);
    assert_eq!(*told.borrow(), answer.text);
}
