//! Serving MCP over a binding: what each call returns, and our own client against it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::oneshot;
use serde_json::{Map, Value, json};
use workers_agents::ports::{ObjectAddress, ObjectError, Objects, RemoteObject};
use workers_agents::protocol::RpcError;
use workers_agents::serving::*;
use workers_agents::{
    CallOptions, ElicitRequest, ElicitResult, ElicitationHandlers, RegisterServer, ServerId,
};

use crate::support::{PoolSpawn, Started, World, names};

/// A server whose tool does what its name says.
#[derive(Default)]
struct Tools {
    /// Requests of the tool `wait` that are dropped when they are given up.
    waiting: Rc<RefCell<Vec<oneshot::Sender<()>>>>,
    notified: Rc<RefCell<Vec<String>>>,
}

impl ServeMcp for Tools {
    fn profile(&self) -> ServerProfile {
        ServerProfile {
            name: "tools".into(),
            version: "1".into(),
            instructions: None,
            capabilities: Map::from_iter([("tools".to_owned(), json!({}))]),
        }
    }

    async fn request(
        &self,
        request: &ServedRequest,
        caller: &ServedCaller,
    ) -> Result<Value, RpcError> {
        let text = |text: String| Ok(json!({"content": [{"type": "text", "text": text}]}));
        match request.method.as_str() {
            "tools/list" => {
                Ok(json!({"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}))
            }
            "tools/call" => {
                let call: Value = request.params()?;
                match call["name"].as_str().unwrap_or_default() {
                    "ask" => {
                        caller.progress(1.0, Some(2.0), None);
                        let (one, two) = futures::join!(ask("one", caller), ask("two", caller));
                        caller.progress(2.0, Some(2.0), None);
                        text(format!("{} {}", one?, two?))
                    }
                    "wait" => {
                        let (sender, receiver) = oneshot::channel();
                        self.waiting.borrow_mut().push(sender);
                        let _ = receiver.await;
                        text("waited".into())
                    }
                    name => text(name.into()),
                }
            }
            "strict" => request.params::<Vec<u8>>().map(|_| json!({})),
            _ => Err(RpcError::unknown_method()),
        }
    }

    fn notified(&self, method: &str, _: Option<&serde_json::value::RawValue>) {
        self.notified.borrow_mut().push(method.into());
    }
}

async fn ask(message: &str, caller: &ServedCaller) -> Result<String, RpcError> {
    let params = json!({"message": message, "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}});
    let answer = caller.ask("elicitation/create", &params).await?;
    Ok(answer["content"]["name"]
        .as_str()
        .unwrap_or("nobody")
        .into())
}

fn server(world: &World, tools: Tools) -> RpcServer<Tools> {
    let spawn = Rc::new(PoolSpawn(world.pool.spawner()));
    RpcServer::on_ports(tools, world.clock.clone(), spawn)
}

type Handled = Result<Option<Value>, ServeError>;

fn start(world: &mut World, server: &RpcServer<Tools>, message: Value) -> Started<Handled> {
    let server = server.clone();
    world.start(async move {
        let said = server.handle(&message.to_string()).await?;
        Ok(said.map(|text| serde_json::from_str(&text).unwrap()))
    })
}

fn handle(world: &mut World, server: &RpcServer<Tools>, message: Value) -> Handled {
    start(world, server, message).outcome().expect("it returns")
}

fn call(id: impl Into<Value>, name: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": {
        "name": name, "_meta": {"progressToken": "t"}}})
}

fn text_of(response: &Value) -> &str {
    response["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
}

#[test]
fn each_kind_of_message_returns_what_the_contract_says() {
    let mut world = World::new();
    let server = server(&world, Tools::default());
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let ok = |said: Handled| said.unwrap();
    let said = ok(handle(&mut world, &server, call(1, "echo"))).unwrap();
    assert_eq!((&said["id"], text_of(&said)), (&json!(1), "echo"));
    assert_eq!(ok(handle(&mut world, &server, notification.clone())), None);
    assert_eq!(ok(handle(&mut world, &server, json!([notification]))), None);
    let batch = json!([call(1, "a"), notification, call("b", "b")]);
    let said = ok(handle(&mut world, &server, batch)).unwrap();
    assert_eq!([text_of(&said[0]), text_of(&said[1])], ["a", "b"]);
    let one = ok(handle(&mut world, &server, json!([call(1, "a")]))).unwrap();
    assert_eq!(text_of(&one[0]), "a");
    let empty = handle(&mut world, &server, json!([]));
    assert_eq!(
        empty.unwrap_err().to_string(),
        "Invalid JSON-RPC batch: array must not be empty"
    );
    for (odd, id) in [
        (json!({"id": 7}), json!(7)),
        (json!({"id": "x", "method": 1}), json!("x")),
        (json!("text"), Value::Null),
        (json!([[1]])[0].clone(), Value::Null),
    ] {
        let said = ok(handle(&mut world, &server, odd.clone())).unwrap();
        let said = if said.is_array() {
            said[0].clone()
        } else {
            said
        };
        assert_eq!(
            (&said["error"]["code"], &said["id"]),
            (&json!(-32600), &id),
            "{odd}"
        );
    }
    for (method, code) in [("nothing/such", -32601), ("strict", -32602)] {
        let asked = json!({"jsonrpc": "2.0", "id": 1, "method": method});
        let said = ok(handle(&mut world, &server, asked)).unwrap();
        assert_eq!(said["error"]["code"], code);
    }
    let stray = json!({"jsonrpc": "2.0", "id": "elicit_1", "result": {}});
    assert_eq!(ok(handle(&mut world, &server, stray)), None);
}

#[test]
fn ids_are_not_used_twice_and_no_call_lasts_for_ever() {
    let mut world = World::new();
    let tools = Tools::default();
    let waiting = tools.waiting.clone();
    let server = server(&world, tools);
    let first = start(&mut world, &server, call("same", "wait"));
    let second = handle(&mut world, &server, call("same", "echo"));
    assert_eq!(
        second.unwrap_err().to_string(),
        "Duplicate pending RPC request id: same"
    );
    world.advance(Duration::from_secs(61));
    let late = first.outcome().unwrap().unwrap_err();
    assert_eq!(
        late.to_string(),
        "Request timeout: No response received within 60000ms"
    );
    world.settle();
    assert!(waiting.borrow()[0].is_canceled(), "the work goes on");
    assert!(
        handle(&mut world, &server, call("same", "echo"))
            .unwrap()
            .is_some()
    );
    // One that is cancelled returns nothing, at once.
    let given_up = start(&mut world, &server, call(5, "wait"));
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    handle(&mut world, &server, cancel).unwrap();
    world.settle();
    assert_eq!(given_up.outcome().unwrap().unwrap(), None);
    assert!(waiting.borrow()[1].is_canceled());
}

#[test]
fn limits_are_kept() {
    let mut world = World::new();
    let limits = ServeLimits {
        message_bytes: 500,
        batch: 2,
        requests: 1,
        ..ServeLimits::default()
    };
    let server = server(&world, Tools::default()).with_limits(limits);
    let large = handle(&mut world, &server, call(1, &"x".repeat(500)));
    assert_eq!(large.unwrap_err(), ServeError::TooLarge(500));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let many = handle(&mut world, &server, json!([ping, ping, ping]))
        .unwrap()
        .unwrap();
    assert_eq!(many["error"]["code"], -32600);
    let _waits = start(&mut world, &server, call(1, "wait"));
    let refused = handle(&mut world, &server, call(2, "echo"))
        .unwrap()
        .unwrap();
    assert_eq!(refused["error"]["message"], "too many requests at once");
}

#[test]
fn questions_are_results_one_after_the_other_and_answers_go_on() {
    let mut world = World::new();
    let server = server(&world, Tools::default());
    let asked = [call(1, "ask"), call(2, "ask")]
        .map(|call| handle(&mut world, &server, call).unwrap().unwrap());
    // Progress comes before the question.
    assert_eq!(asked[0][0]["method"], "notifications/progress");
    let question = |said: &Value| {
        let said = if said.is_array() {
            said[1].clone()
        } else {
            said.clone()
        };
        assert_eq!(said["method"], "elicitation/create");
        said
    };
    let answer = |question: &Value, name: &str| {
        assert!(question["id"].as_str().unwrap().starts_with("elicit_"));
        let result = json!({"action": "accept", "content": {"name": name}});
        json!({"jsonrpc": "2.0", "id": question["id"], "result": result})
    };
    let [first, second] = asked.map(|said| question(&said));
    // Out of order: each answer goes on with its own request.
    let of_second = handle(&mut world, &server, answer(&second, "a"))
        .unwrap()
        .unwrap();
    let of_first = handle(&mut world, &server, answer(&first, "c"))
        .unwrap()
        .unwrap();
    let [second, first] = [question(&of_second), question(&of_first)];
    assert_eq!(first["params"]["message"], "two");
    let done = handle(&mut world, &server, answer(&second, "b"))
        .unwrap()
        .unwrap();
    assert_eq!((text_of(&done[1]), &done[1]["id"]), ("a b", &json!(2)));
    let refused =
        json!({"jsonrpc": "2.0", "id": first["id"], "error": {"code": -1, "message": "no"}});
    let done = handle(&mut world, &server, refused).unwrap().unwrap();
    assert_eq!(done[1]["error"]["message"], "no");
}

#[test]
fn what_the_caller_does_not_offer_is_not_asked() {
    let mut world = World::new();
    let server = server(&world, Tools::default());
    for (version, agreed) in [
        ("2025-06-18", "2025-06-18"),
        ("2026-07-28", "2025-11-25"),
        ("x", "2025-11-25"),
    ] {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}});
        let said = handle(&mut world, &server, hello).unwrap().unwrap();
        assert_eq!(said["result"]["protocolVersion"], agreed);
        assert_eq!(said["result"]["serverInfo"]["name"], "tools");
    }
    let said = handle(&mut world, &server, call(1, "ask"))
        .unwrap()
        .unwrap();
    let last = said.as_array().unwrap().last().unwrap();
    assert_eq!(
        last["error"]["message"],
        "the caller does not offer elicitation"
    );
}

/// Objects that are such servers.
struct Served(RpcServer<Tools>);

#[async_trait(?Send)]
impl Objects for Served {
    fn caller(&self) -> String {
        "00".into()
    }

    async fn connect(&self, _: &ObjectAddress) -> Result<Rc<dyn RemoteObject>, ObjectError> {
        Ok(Rc::new(Self(self.0.clone())))
    }
}

#[async_trait(?Send)]
impl RemoteObject for Served {
    async fn call(&self, message: &str, _: usize) -> Result<Option<String>, ObjectError> {
        let returned = self.0.handle(message).await;
        returned.map_err(|error| ObjectError::Threw(error.to_string()))
    }
}

#[test]
fn our_own_client_uses_it_with_questions_and_progress_and_gives_calls_up() {
    let mut world = World::new();
    let tools = Tools::default();
    let (waiting, notified) = (tools.waiting.clone(), tools.notified.clone());
    world.objects = Some(Rc::new(Served(server(&world, tools))));
    let mcp = world.manager();
    mcp.configure_elicitation_handlers(ElicitationHandlers::new().form(
        async |request: ElicitRequest, _: ServerId| {
            let name = ("name".to_owned(), Value::from(request.message));
            Ok(ElicitResult::accept(Map::from_iter([name])))
        },
    ));
    let registered = mcp.register_server("pier", RegisterServer::rpc("Tools", "TOOLS"));
    world.run(registered).unwrap();
    world.run(mcp.connect_to_server("pier")).unwrap();
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    assert_eq!(names(&mcp), ["ask"]);
    assert_eq!(*notified.borrow(), ["notifications/initialized"]);
    let heard: Rc<RefCell<Vec<f64>>> = Rc::default();
    let listener = heard.clone();
    let options = CallOptions::new()
        .on_progress(move |progress| listener.borrow_mut().push(progress.progress));
    let result = world.run(mcp.call_tool_with("pier", "ask", json!({}), &options));
    assert_eq!(result.unwrap().text(), "one two");
    assert_eq!(*heard.borrow(), [1.0, 2.0]);
    let given_up = {
        let mcp = mcp.clone();
        let options = CallOptions::new().timeout(Duration::from_secs(5));
        world.start(async move {
            mcp.call_tool_with("pier", "wait", json!({}), &options)
                .await
        })
    };
    world.advance(Duration::from_secs(6));
    assert!(given_up.outcome().unwrap().is_err());
    world.settle();
    assert!(waiting.borrow()[0].is_canceled(), "the server works on");
}
