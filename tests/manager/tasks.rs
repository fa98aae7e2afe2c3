//! Calls that servers run as tasks, in both designs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use workers_agents::protocol::CallToolResult;
use workers_agents::{
    CallOptions, ElicitResult, Error, McpClientManager, McpEvent, OpenQuestions, Started, Task,
    TaskStatus,
};

use crate::support::mcp_server::{result, rpc_error};
use crate::support::talker::{Talker, text_of};
use crate::support::{Started as Running, World};

const SECOND: Duration = Duration::from_secs(1);

/// A server whose tool `slow` runs as a task, with one task `t-1`.
struct Worker {
    talker: Rc<Talker>,
    /// What `tasks/get` says of the task.
    task: Rc<RefCell<Value>>,
}

fn described(is_modern: bool, status: &str) -> Value {
    let mut task = json!({"taskId": "t-1", "status": status, "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z"});
    if is_modern {
        task["ttlMs"] = json!(60_000);
        task["pollIntervalMs"] = json!(2_000);
    } else {
        task["ttl"] = json!(60_000);
        task["pollInterval"] = json!(2_000);
    }
    task
}

impl Worker {
    fn new(is_modern: bool, support: &str) -> Self {
        let talker = if is_modern {
            Talker::modern(
                json!({"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}),
            )
        } else {
            Talker::legacy(
                json!({"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}),
            )
        };
        talker.set(
            "tools/list",
            json!({"tools": [{"name": "slow", "inputSchema": {"type": "object"},
            "execution": {"taskSupport": support}}]}),
        );
        talker.on("tools/call", move |seen| {
            let params = &seen.body["params"];
            let meta = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
            let mut created = described(is_modern, "working");
            if is_modern && !meta["extensions"]["io.modelcontextprotocol/tasks"].is_null() {
                created["resultType"] = json!("task");
                return result(seen, created);
            }
            if !is_modern && params.get("task").is_some() {
                return result(seen, json!({"task": created}));
            }
            result(
                seen,
                json!({"content": [{"type": "text", "text": "at once"}]}),
            )
        });
        let task = Rc::new(RefCell::new(described(is_modern, "working")));
        let told = task.clone();
        talker.on("tasks/get", move |seen| {
            if seen.body["params"]["taskId"] != "t-1" || told.borrow().is_null() {
                return rpc_error(200, seen, -32602, Value::Null);
            }
            if seen.header("mcp-method").is_some() {
                assert_eq!(seen.header("mcp-name"), Some("t-1"));
            }
            result(seen, told.borrow().clone())
        });
        talker.set("tasks/cancel", json!({}));
        Self { talker, task }
    }

    fn says(&self, status: &str) {
        self.task.replace(described(self.talker.is_modern, status));
    }

    /// The task is over, with this result of the tool.
    fn completes(&self, outcome: Value) {
        if self.talker.is_modern {
            let mut task = described(true, "completed");
            task["result"] = outcome;
            self.task.replace(task);
        } else {
            self.says("completed");
            self.talker.set("tasks/result", outcome);
        }
    }
}

fn start(world: &mut World, mcp: &McpClientManager) -> Task {
    let options = CallOptions::default();
    let ttl = Some(60 * SECOND);
    match world
        .run(mcp.start_tool("pier", "slow", json!({"n": 1}), ttl, &options))
        .unwrap()
    {
        Started::Task(task) => task,
        Started::Finished(result) => panic!("{result:?}"),
    }
}

fn wait(world: &mut World, mcp: &McpClientManager) -> Running<Result<CallToolResult, Error>> {
    let waiting = mcp.clone();
    world.start(async move {
        waiting
            .await_task("pier", "t-1", &CallOptions::default())
            .await
    })
}

#[test]
fn a_task_is_started_looked_at_and_awaited() {
    for is_modern in [false, true] {
        let worker = Worker::new(is_modern, "optional");
        let (mut world, mcp) = worker.talker.world();
        let task = start(&mut world, &mcp);
        assert_eq!(
            (task.id.as_str(), &task.status),
            ("t-1", &TaskStatus::Working)
        );
        assert_eq!(
            (task.ttl_ms, task.poll_interval_ms),
            (Some(60_000), Some(2_000))
        );
        let sent = world.sent("tools/call").pop().unwrap().body["params"].clone();
        let asked = sent.get("task").cloned();
        assert_eq!(asked, (!is_modern).then(|| json!({"ttl": 60_000})));
        assert_eq!(
            world.run(mcp.task("pier", "t-1")).unwrap().status,
            TaskStatus::Working
        );
        let known = mcp.known_tasks().unwrap();
        assert_eq!((known.len(), known[0].tool.as_str()), (1, "slow"));

        let waiting = wait(&mut world, &mcp);
        let looks = world.count("tasks/get");
        world.advance(Duration::from_millis(1_999));
        assert_eq!(world.count("tasks/get"), looks, "not before the interval");
        world.advance(Duration::from_millis(1));
        assert_eq!(world.count("tasks/get"), looks + 1);
        let outcome = json!({"content": [{"type": "text", "text": "done"}], "isError": true});
        worker.completes(outcome.clone());
        world.advance(2 * SECOND);
        assert_eq!(text_of(&waiting.outcome().unwrap().unwrap()), outcome);
        assert!(mcp.known_tasks().unwrap().is_empty());
        assert_eq!(world.count("tools/call"), 1);
    }
}

#[test]
fn a_plain_call_is_no_task_unless_the_tool_demands_one() {
    for is_modern in [false, true] {
        let worker = Worker::new(is_modern, "optional");
        let (mut world, mcp) = worker.talker.world();
        let result = world.run(mcp.call_tool("pier", "slow", json!({}))).unwrap();
        assert_eq!(result.text(), "at once");
    }
    let worker = Worker::new(false, "forbidden");
    let (mut world, mcp) = worker.talker.world();
    let options = CallOptions::default();
    let started = world
        .run(mcp.start_tool("pier", "slow", json!({}), None, &options))
        .unwrap();
    assert!(matches!(started, Started::Finished(_)));
    assert!(
        world.sent("tools/call")[0].body["params"]
            .get("task")
            .is_none()
    );

    let worker = Worker::new(false, "required");
    let (mut world, mcp) = worker.talker.world();
    worker.completes(json!({"content": [{"type": "text", "text": "as a task"}]}));
    let result = world.run(mcp.call_tool("pier", "slow", json!({}))).unwrap();
    assert_eq!(result.text(), "as a task");
    assert_eq!(world.count("tasks/result"), 1);
}

#[test]
fn a_task_that_fails_fails_with_its_own_error() {
    let worker = Worker::new(true, "optional");
    let (mut world, mcp) = worker.talker.world();
    start(&mut world, &mcp);
    let mut task = described(true, "failed");
    task["error"] = json!({"code": -32010, "message": "the tide is out"});
    worker.task.replace(task);
    let outcome = wait(&mut world, &mcp).outcome().unwrap();
    assert!(
        matches!(&outcome, Err(Error::Rpc(error)) if error.code == -32010),
        "{outcome:?}"
    );
    assert!(mcp.known_tasks().unwrap().is_empty());

    let worker = Worker::new(false, "optional");
    let (mut world, mcp) = worker.talker.world();
    start(&mut world, &mcp);
    worker.says("failed");
    worker.talker.on("tasks/result", |seen| {
        rpc_error(200, seen, -32602, json!("bad arguments"))
    });
    let outcome = wait(&mut world, &mcp).outcome().unwrap();
    assert!(
        matches!(&outcome, Err(Error::Rpc(error)) if error.code == -32602),
        "{outcome:?}"
    );
}

#[test]
fn a_task_is_cancelled_by_its_own_method() {
    for is_modern in [false, true] {
        let worker = Worker::new(is_modern, "optional");
        let (mut world, mcp) = worker.talker.world();
        start(&mut world, &mcp);
        world.run(mcp.cancel_task("pier", "t-1")).unwrap();
        assert_eq!(world.count("tasks/cancel"), 1);
        assert_eq!(world.count("notifications/cancelled"), 0);
        assert!(mcp.known_tasks().unwrap().is_empty());
    }
    let worker = Worker::new(true, "optional");
    let (mut world, mcp) = worker.talker.world();
    start(&mut world, &mcp);
    worker.says("cancelled");
    assert!(matches!(
        wait(&mut world, &mcp).outcome(),
        Some(Err(Error::TaskCancelled))
    ));
}

#[test]
fn a_task_is_known_after_a_wake_until_its_time_is_over() {
    for is_modern in [false, true] {
        let worker = Worker::new(is_modern, "optional");
        let (mut world, mcp) = worker.talker.world();
        start(&mut world, &mcp);
        let mcp = world.wake();
        world.settle();
        assert_eq!(mcp.known_tasks().unwrap()[0].task_id, "t-1");
        worker.completes(json!({"content": []}));
        wait(&mut world, &mcp).outcome().unwrap().unwrap();

        worker.says("working");
        start(&mut world, &mcp);
        world.pass(59 * SECOND, SECOND);
        assert_eq!(mcp.known_tasks().unwrap().len(), 1);
        world.pass(2 * SECOND, SECOND);
        assert!(mcp.known_tasks().unwrap().is_empty());
    }
}

#[test]
fn a_task_that_nobody_knows_is_said_to_be_unknown() {
    for is_modern in [false, true] {
        let worker = Worker::new(is_modern, "optional");
        let (mut world, mcp) = worker.talker.world();
        start(&mut world, &mcp);
        assert!(matches!(
            world.run(mcp.task("pier", "other")),
            Err(Error::UnknownTask(_))
        ));
        worker.task.replace(Value::Null);
        let outcome = wait(&mut world, &mcp).outcome();
        assert!(
            matches!(outcome, Some(Err(Error::UnknownTask(_)))),
            "{outcome:?}"
        );
        assert!(mcp.known_tasks().unwrap().is_empty());
    }
}

fn question() -> Value {
    json!({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}})
}

#[test]
fn a_task_of_the_modern_era_gets_its_inputs_once() {
    let worker = Worker::new(true, "optional");
    let mut world = World::new();
    let mcp = world.manager();
    let questions = OpenQuestions::new();
    mcp.configure_elicitation_handlers(questions.handlers());
    worker.talker.add(&mut world, &mcp, "pier");
    start(&mut world, &mcp);
    let mut task = described(true, "input_required");
    task["inputRequests"] = json!({"k1": {"method": "elicitation/create", "params": question()}});
    worker.task.replace(task.clone());
    worker
        .talker
        .set("tasks/update", json!({"resultType": "complete"}));
    let waiting = wait(&mut world, &mcp);
    questions
        .answer(&questions.list()[0].id, ElicitResult::Decline)
        .unwrap();
    world.settle();
    let update = world.sent("tasks/update").pop().unwrap();
    assert_eq!(update.header("mcp-name"), Some("t-1"));
    assert_eq!(update.body["params"]["taskId"], "t-1");
    assert_eq!(
        update.body["params"]["inputResponses"],
        json!({"k1": {"action": "decline"}})
    );
    // The status lags behind, and another input joins.
    world.advance(2 * SECOND);
    assert!(
        questions.list().is_empty(),
        "nobody is asked the same twice"
    );
    task["inputRequests"]["k2"] = json!({"method": "elicitation/create", "params": question()});
    worker.task.replace(task);
    world.advance(2 * SECOND);
    assert_eq!(questions.list().len(), 1);
    questions
        .answer(&questions.list()[0].id, ElicitResult::Cancel)
        .unwrap();
    world.settle();
    assert_eq!(
        world.sent("tasks/update").pop().unwrap().body["params"]["inputResponses"],
        json!({"k2": {"action": "cancel"}})
    );
    worker.completes(json!({"content": []}));
    world.advance(2 * SECOND);
    waiting.outcome().unwrap().unwrap();
    assert_eq!(world.count("tools/call"), 1);
}

#[test]
fn a_task_of_the_legacy_era_asks_on_the_stream_of_its_result() {
    let worker = Worker::new(false, "optional");
    let mut world = World::new();
    let mcp = world.manager();
    let questions = OpenQuestions::new();
    mcp.configure_elicitation_handlers(questions.handlers());
    worker.talker.add(&mut world, &mcp, "pier");
    start(&mut world, &mcp);
    worker.says("input_required");
    worker.talker.live("tasks/result");
    let waiting = wait(&mut world, &mcp);
    let talk = worker.talker.talk("tasks/result");
    talk.ask(json!("q"), "elicitation/create", question());
    world.settle();
    world.pass(90 * SECOND, SECOND);
    questions
        .answer(&questions.list()[0].id, ElicitResult::Decline)
        .unwrap();
    world.settle();
    assert_eq!(
        world.answers()[0],
        json!({"jsonrpc": "2.0", "id": "q", "result": {"action": "decline"}})
    );
    talk.answer(json!({"content": []}));
    world.settle();
    waiting.outcome().unwrap().unwrap();
}

#[test]
fn waiting_for_a_result_goes_on_when_one_request_for_it_times_out() {
    let worker = Worker::new(false, "optional");
    let (mut world, mcp) = worker.talker.world();
    start(&mut world, &mcp);
    worker.says("input_required");
    worker.talker.live("tasks/result");
    let waiting = wait(&mut world, &mcp);
    world.pass(70 * SECOND, SECOND);
    assert!(waiting.outcome().is_none(), "the task is not over");
    worker.completes(json!({"content": []}));
    world.pass(70 * SECOND, SECOND);
    waiting.outcome().unwrap().unwrap();
}

#[test]
fn waiting_ends_at_its_limit_and_the_task_goes_on() {
    for is_modern in [false, true] {
        let worker = Worker::new(is_modern, "optional");
        let (mut world, mcp) = worker.talker.world();
        start(&mut world, &mcp);
        let waiting = mcp.clone();
        let waiting = world.start(async move {
            let options = CallOptions::new().max_time(10 * SECOND);
            waiting.await_task("pier", "t-1", &options).await
        });
        world.pass(11 * SECOND, SECOND);
        assert!(matches!(
            waiting.outcome(),
            Some(Err(Error::Timeout { .. }))
        ));
        assert_eq!(mcp.known_tasks().unwrap().len(), 1);
        assert_eq!(world.count("tasks/cancel"), 0);
    }
}

#[test]
fn notices_about_tasks_are_told() {
    for is_modern in [false, true] {
        let worker = Worker::new(is_modern, "optional");
        worker.talker.live("tools/call");
        let (mut world, mcp) = worker.talker.world();
        let told = Rc::new(Cell::new(0));
        let count = told.clone();
        mcp.on_observability_event(move |event| {
            if matches!(event, McpEvent::TaskChanged { task_id, .. } if task_id == "t-1") {
                count.set(count.get() + 1);
            }
        })
        .detach();
        let calling = mcp.clone();
        let call = world.start(async move { calling.call_tool("pier", "slow", json!({})).await });
        let talk = worker.talker.talk("tools/call");
        let method = if is_modern {
            "notifications/tasks"
        } else {
            "notifications/tasks/status"
        };
        talk.notify(method, described(is_modern, "working"));
        talk.answer(json!({"content": []}));
        world.settle();
        call.outcome().unwrap().unwrap();
        assert_eq!(told.get(), 1);
    }
}

#[test]
fn a_task_where_none_was_asked_for_is_an_error() {
    let worker = Worker::new(true, "optional");
    worker.talker.on("tools/call", |seen| {
        let mut created = described(true, "working");
        created["resultType"] = json!("task");
        result(seen, created)
    });
    let (mut world, mcp) = worker.talker.world();
    let outcome = world.run(mcp.call_tool("pier", "slow", json!({})));
    assert!(matches!(outcome, Err(Error::Protocol(_))), "{outcome:?}");
}
