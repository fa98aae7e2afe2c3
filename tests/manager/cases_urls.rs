//! Cases from public bug reports about MCP clients: which URLs are requested and shown.

use std::rc::Rc;

use http::HeaderMap;
use serde_json::{Value, json};
use workers_agents::url_guard::{BlockReason, UrlPolicy};
use workers_agents::{
    ConnectionState as S, ElicitMode, ElicitResult, Error, McpClientManager, OpenQuestions,
    RegisterServer, TransportKind,
};

use crate::support::auth_world::AuthWorld;
use crate::support::case_server::CaseServer;
use crate::support::mcp_server::{result, rpc_error};
use crate::support::talker::Talker;
use crate::support::{Reply, Seen, URL, World, add, register, state};

fn moved(status: u16, location: &str) -> Reply {
    Reply::status(status).with("location", location)
}

/// Why it may not be registered.
fn refused(world: &mut World, mcp: &McpClientManager, url: &str) -> Option<BlockReason> {
    match world.run(mcp.register_server("x", RegisterServer::new("x", url))) {
        Err(Error::BlockedUrl(blocked)) => Some(blocked.reason()),
        Err(other) => panic!("{url}: {other:?}"),
        Ok(_) => None,
    }
}

/// The URLs that were requested, each once, oldest first.
fn asked(world: &World) -> Vec<String> {
    let seen = world.network.seen.borrow();
    let mut urls: Vec<_> = seen.iter().map(|seen| seen.url.clone()).collect();
    urls.dedup();
    urls
}

fn by(policy: UrlPolicy) -> World {
    let mut world = World::new();
    world.options = world.options.url_policy(policy);
    world
}

#[test]
fn ss_01_an_address_is_refused_in_every_spelling() {
    let mut world = World::new();
    let mcp = world.manager();
    for url in [
        "http://167772161/",
        "http://0x0a000001/",
        "http://012.0.0.1/",
        "http://10.1/",
        "http://0xA9FEA9FE/latest",
        "http://2852039166/",
        "http://%31%30.0.0.1/",
        "http://０.0.0.0/",
        "http://１０.0.0.1/",
    ] {
        assert!(refused(&mut world, &mcp, url).is_some(), "{url}");
    }
    assert!(world.table.rows.borrow().is_empty());
    assert!(world.network.seen.borrow().is_empty());
}

#[test]
fn ss_04_reserved_ranges_are_refused_and_their_neighbours_are_not() {
    let mut world = World::new();
    let mcp = world.manager();
    for host in [
        "0.0.0.0",
        "0.1.2.3",
        "100.64.0.1",
        "100.127.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
    ] {
        let reason = refused(&mut world, &mcp, &format!("http://{host}/mcp"));
        assert_eq!(reason, Some(BlockReason::Address), "{host}");
    }
    assert!(world.table.rows.borrow().is_empty());
    for host in [
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "169.253.0.1",
    ] {
        let reason = refused(&mut world, &mcp, &format!("http://{host}/mcp"));
        assert_eq!(reason, None, "{host}");
    }
}

#[test]
fn ss_07_no_redirect_leads_to_a_private_address() {
    const HOP: &str = "https://pier.example/hop";
    for target in [
        "http://10.0.0.5/mcp",
        "http://[::ffff:a9fe:a9fe]/",
        "http://0x0a000005/mcp",
        "//metadata.google.internal./",
    ] {
        for (status, is_chain) in [(307, false), (308, true)] {
            let mut world = World::new();
            let first = if is_chain { HOP } else { target };
            world.network.serve(URL, move |_| moved(status, first));
            world.network.serve(HOP, move |_| moved(status, target));
            let mcp = world.manager();
            let error = add(&mut world, &mcp).unwrap_err();
            let text = error.describe();
            assert!(text.contains("redirect to a blocked address"), "{text}");
            assert_eq!(state(&mcp), S::Failed);
            let expected = if is_chain { &[URL, HOP][..] } else { &[URL] };
            assert_eq!(asked(&world), expected, "{target}");
        }
        // The stream of HTTP+SSE, where more redirects are followed.
        let mut world = World::new();
        world.network.serve(URL, |_| moved(302, HOP));
        world.network.serve(HOP, move |_| moved(302, target));
        let mcp = world.manager();
        let server = RegisterServer::new("pier", URL).transport(TransportKind::Sse);
        world.run(mcp.register_server("pier", server)).unwrap();
        let error = world.run(mcp.connect_to_server("pier")).unwrap_err();
        let text = error.describe();
        assert!(text.contains("redirect to a blocked address"), "{text}");
        assert_eq!(asked(&world), [URL, HOP], "{target}");
    }
}

#[test]
fn ss_07_a_redirect_to_a_host_that_the_operator_has_closed_is_not_followed() {
    let policy = UrlPolicy::default().only_hosts(["pier.example:443"]);
    let mut world = by(policy.unwrap());
    world
        .network
        .serve(URL, |_| moved(307, "https://quay.example/mcp"));
    let mcp = world.manager();
    let text = add(&mut world, &mcp).unwrap_err().describe();
    assert!(text.contains("redirect to a blocked address"), "{text}");
    assert_eq!(asked(&world), [URL]);
}

#[test]
fn ss_12_a_redirected_post_does_not_become_a_get() {
    for status in [301, 302, 303] {
        let mut world = World::new();
        world.network.serve(URL, move |_| {
            moved(status, "https://pier.example/mcp2?key=secret")
        });
        let mcp = world.manager();
        let error = add(&mut world, &mcp).unwrap_err();
        let text = error.describe();
        let place = format!("the server has moved to https://pier.example/mcp2 (status {status})");
        assert!(text.contains(&place), "{text}");
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(world.network.seen.borrow().len(), 1, "{status}");
        assert!(!error.is_transient());
    }
}

#[test]
fn ss_14_a_url_stored_under_another_policy_is_judged_by_the_one_of_now() {
    let open = UrlPolicy::default().allow_host("10.0.0.0/8").unwrap();
    let no_pier = UrlPolicy::default().deny_host("PIER.example").unwrap();
    let others = UrlPolicy::default().only_hosts(["*.pier.example"]).unwrap();
    let no_local = UrlPolicy::default().allow_loopback(false);
    let local = "http://localhost:8787/mcp";
    for (url, before, after, reason) in [
        (
            "http://10.0.0.1/mcp",
            &open,
            &UrlPolicy::default(),
            BlockReason::Address,
        ),
        (URL, &UrlPolicy::default(), &no_pier, BlockReason::Denied),
        (URL, &UrlPolicy::default(), &others, BlockReason::NotListed),
        (
            local,
            &UrlPolicy::default(),
            &no_local,
            BlockReason::Loopback,
        ),
    ] {
        let server = CaseServer::stateless();
        let mut world = by(before.clone());
        world.network.serve(url, move |seen| server.answer(seen));
        let mcp = world.manager();
        register(&mut world, &mcp, "pier", url);
        world.run(mcp.connect_to_server("pier")).unwrap();
        assert_eq!(state(&mcp), S::Connected, "{url}");

        world.options = world.options.clone().url_policy(after.clone());
        world.network.forget();
        let mcp = world.wake();
        world.run(mcp.wait_for_connections(None));
        assert_eq!(state(&mcp), S::Failed, "{url}");
        let error = mcp.connection("pier").unwrap().error.unwrap();
        let Error::BlockedUrl(blocked) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(blocked.reason(), reason);
        assert!(asked(&world).is_empty(), "{url}");
        let again = world.run(mcp.connect_to_server("pier")).unwrap_err();
        assert!(matches!(again, Error::BlockedUrl(_)), "{again:?}");
        assert!(asked(&world).is_empty(), "{url}");
        assert_eq!(refused(&mut world, &mcp, url), Some(reason));

        // And back: the row has kept what was said.
        world.options = world.options.clone().url_policy(before.clone());
        let mcp = world.wake();
        world.run(mcp.wait_for_connections(None));
        assert_eq!(state(&mcp), S::Ready, "{url}");
    }
}

#[test]
fn redirects_are_judged_by_the_configured_policy() {
    let policy = UrlPolicy::default().allow_host("10.0.0.1:80").unwrap();
    let mut world = by(policy);
    let (from, to) = ("http://10.0.0.1/mcp", "http://10.0.0.1/mcp/");
    let server = CaseServer::with_sessions();
    world.network.serve(from, move |_| moved(308, "/mcp/"));
    world.network.serve(to, move |seen| server.answer(seen));
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", from);
    world.run(mcp.connect_to_server("pier")).unwrap();

    world
        .network
        .serve(from, |_| moved(308, "http://10.0.0.2/mcp"));
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    let error = mcp.connection("pier").unwrap().error.unwrap().describe();
    assert!(error.contains("redirect to a blocked address"), "{error}");
}

// ---- Redirects that repeat the request

const SLASH: &str = "https://pier.example/mcp/";
const DEEP: &str = "https://pier.example/mcp/docs/1";

/// What arrived at a place, oldest first: method, headers and body.
fn arrived(world: &World, url: &str) -> Vec<(String, HeaderMap, String)> {
    let seen = world.network.seen.borrow();
    let here = seen.iter().filter(|seen| seen.url == url);
    here.map(|seen| (seen.method.clone(), seen.headers.clone(), seen.text.clone()))
        .collect()
}

#[test]
fn ss_10_a_redirect_within_the_origin_repeats_method_headers_and_body() {
    for (status, location) in [
        (307, "/mcp/"),
        (308, SLASH),
        (307, "mcp/"),
        (308, "//pier.example:443/mcp/"),
    ] {
        let server = CaseServer::with_sessions();
        let mut world = World::new();
        world.network.serve(URL, move |_| moved(status, location));
        let (at_slash, at_docs) = (server.clone(), server);
        world.network.serve(SLASH, move |seen| {
            if seen.header("authorization") != Some("Bearer b-1") {
                return Reply::status(401);
            }
            match seen.rpc().as_str() {
                "tools/call" => moved(308, "/mcp/docs/1"),
                _ => at_slash.answer(seen),
            }
        });
        world.network.serve(DEEP, move |seen| at_docs.answer(seen));
        let mcp = world.manager();
        let registered = RegisterServer::new("pier", URL)
            .header("Authorization", "Bearer b-1")
            .header("X-Tenant", "a b");
        world.run(mcp.register_server("pier", registered)).unwrap();
        world
            .run(async {
                mcp.connect_to_server("pier").await?;
                mcp.discover_if_connected("pier", None).await
            })
            .unwrap();
        assert_eq!(state(&mcp), S::Ready, "{status} {location}");
        let arguments = json!({"z": "\u{e9}", "a": [1, {"b": null}]});
        let result = world.run(mcp.call_tool("pier", "echo", &arguments));
        assert_eq!(result.unwrap().text(), arguments.to_string());
        world.settle();

        let (first, second, third) = (
            arrived(&world, URL),
            arrived(&world, SLASH),
            arrived(&world, DEEP),
        );
        assert_eq!(first, second, "{status} {location}");
        assert!(first.len() >= 4, "{}", first.len());
        let calls: Vec<_> = second
            .into_iter()
            .filter(|(_, _, body)| body.contains("tools/call"))
            .collect();
        assert_eq!((calls.len(), &calls), (1, &third));
        let (method, headers, _) = &third[0];
        assert_eq!(method, "POST");
        for (name, value) in [
            ("authorization", "Bearer b-1"),
            ("x-tenant", "a b"),
            ("mcp-session-id", "s1"),
            ("mcp-protocol-version", "2025-11-25"),
            ("content-type", "application/json"),
        ] {
            assert_eq!(headers[name], value, "{name}");
        }
    }
}

#[test]
fn ss_10_the_token_of_a_sign_in_goes_along_on_every_hop() {
    let mut world = AuthWorld::ready();
    for (from, to) in [(URL, SLASH), (SLASH, DEEP)] {
        world.network.serve(from, move |_| moved(307, to));
    }
    world.pier.serve(&world.network, DEEP);
    world.network.forget();
    world.call("echo").unwrap();
    let hops = [URL, SLASH, DEEP].map(|url| arrived(&world, url));
    assert_eq!(hops[0].len(), 1);
    assert!(
        hops[0][0].1["authorization"]
            .to_str()
            .unwrap()
            .starts_with("Bearer ")
    );
    assert!(hops.iter().all(|hop| *hop == hops[0]), "{hops:?}");
}

#[test]
fn ss_10_a_loop_of_redirects_ends_after_a_few_hops_with_an_error() {
    for status in [307, 308] {
        // Of two places at registration.
        let mut world = World::new();
        world.network.serve(URL, move |_| moved(status, SLASH));
        world.network.serve(SLASH, move |_| moved(status, URL));
        let mcp = world.manager();
        let error = add(&mut world, &mcp).unwrap_err();
        let text = error.describe();
        assert!(text.contains("redirects in a row"), "{text}");
        assert!(!error.is_transient(), "it would end nowhere else");
        assert_eq!(state(&mcp), S::Failed);
        let hops = world.network.seen.borrow().len();
        assert!((2..=11).contains(&hops), "{hops}");

        // Of ever new places, in a call. The connection is as good as before.
        let server = CaseServer::with_sessions();
        let mut world = server.world();
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        for number in 0..20 {
            let place = |number| format!("https://pier.example/{number}");
            let next = place(number + 1);
            world
                .network
                .serve(&place(number), move |_| moved(status, &next));
        }
        let regular = server.clone();
        world
            .network
            .serve(URL, move |seen| match seen.rpc().as_str() {
                "tools/call" => moved(status, "/0"),
                _ => regular.answer(seen),
            });
        world.network.forget();
        let error = world.run(mcp.call_tool("pier", "echo", json!({})));
        let text = error.unwrap_err().describe();
        assert!(text.contains("redirects in a row"), "{text}");
        let hops = world.network.seen.borrow().len();
        assert!((2..=11).contains(&hops), "{hops}");
        assert_eq!(state(&mcp), S::Ready);
        world.network.serve(URL, move |seen| server.answer(seen));
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    }
}

// ---- Pages for the user

const LOCAL: &str = "http://127.0.0.1:8787/mcp";

/// A server at a URL, a host that keeps the questions, and a policy that closes one host.
fn asking(server: &Rc<Talker>, url: &str) -> (World, McpClientManager, OpenQuestions) {
    let mut world = by(UrlPolicy::default().deny_host("*.bad.example").unwrap());
    let mcp = world.manager();
    let questions = OpenQuestions::new();
    mcp.configure_elicitation_handlers(questions.handlers());
    server.serve(&world, url);
    register(&mut world, &mcp, "pier", url);
    world
        .run(async {
            mcp.connect_to_server("pier").await?;
            mcp.discover_if_connected("pier", None).await
        })
        .unwrap();
    world.settle();
    (world, mcp, questions)
}

/// A page, and whether a server elsewhere and one on loopback may show it.
const PAGES: [(&str, bool, bool); 14] = [
    ("https://page.example/?state=1", true, true),
    ("http://user:pw@page.example/", true, true),
    ("https://8.8.8.8/", true, true),
    ("http://localhost:3000/", false, true),
    ("http://0x7f.1/", false, true),
    ("http://[::ffff:127.0.0.1]/", false, true),
    ("http://192.168.1.1/", false, false),
    ("http://user@192.168.1.1/", false, false),
    ("http://0x0a000001/", false, false),
    ("http://[fd00::1]/", false, false),
    ("http://[64:ff9b::a00:1]/", false, false),
    ("http://169.254.169.254/latest/", false, false),
    ("http://metadata.google.internal./", false, false),
    ("https://www.bad.example/", false, false),
];

fn page(url: &str) -> Value {
    json!({"mode": "url", "message": "Visit", "url": url, "elicitationId": "e"})
}

/// Declines the open question, which must show this page.
fn decline(questions: &OpenQuestions, page: &str) {
    let open = questions.list();
    assert_eq!(open.len(), 1, "{page}");
    assert!(matches!(open[0].request.mode, ElicitMode::Url { .. }));
    questions
        .answer(&open[0].id, ElicitResult::Decline)
        .unwrap();
}

#[test]
fn el_07_pages_of_closed_hosts_are_not_shown_in_the_legacy_era() {
    for (at, is_local) in [(URL, false), (LOCAL, true)] {
        let server = Talker::legacy(json!({"tools": {}}));
        server.live("tools/call");
        let (mut world, mcp, questions) = asking(&server, at);
        for (number, (url, elsewhere, local)) in PAGES.into_iter().enumerate() {
            let calling = mcp.clone();
            let call =
                world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
            let talk = server.talk("tools/call");
            talk.ask(json!(number), "elicitation/create", page(url));
            world.settle();
            if if is_local { local } else { elsewhere } {
                decline(&questions, url);
            } else {
                assert!(questions.list().is_empty(), "{at} {url}");
                let answer = world.answers().last().unwrap().clone();
                assert_eq!(answer["error"]["code"], -32602, "{at} {url}");
                let text = answer["error"]["message"].as_str().unwrap();
                assert!(text.starts_with("the page is refused: "), "{text}");
            }
            talk.answer(json!({"content": []}));
            world.settle();
            call.outcome().unwrap().unwrap();
        }
        assert_eq!(asked(&world), [at], "nobody fetched a page");
    }
}

fn is_retry(seen: &Seen) -> bool {
    seen.body["params"].get("inputResponses").is_some()
}

#[test]
fn el_07_pages_of_closed_hosts_are_not_shown_in_the_modern_era() {
    for (at, is_local) in [(URL, false), (LOCAL, true)] {
        for (url, elsewhere, local) in PAGES {
            let server = Talker::modern(json!({"tools": {}}));
            server.on("tools/call", move |seen| {
                if is_retry(seen) {
                    return result(seen, json!({"resultType": "complete", "content": []}));
                }
                let request = json!({"method": "elicitation/create", "params": page(url)});
                let requests =
                    json!({"resultType": "input_required", "inputRequests": {"a": request}});
                result(seen, requests)
            });
            let (mut world, mcp, questions) = asking(&server, at);
            let calling = mcp.clone();
            let call =
                world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
            if if is_local { local } else { elsewhere } {
                decline(&questions, url);
                world.settle();
                call.outcome().unwrap().unwrap();
            } else {
                assert!(questions.list().is_empty(), "{at} {url}");
                let outcome = call.outcome().unwrap();
                let is_refused = matches!(outcome, Err(Error::InputRefused { .. }));
                assert!(is_refused, "{at} {url} {outcome:?}");
            }
            assert_eq!(asked(&world), [at]);
        }
    }
}

#[test]
fn el_07_pages_to_visit_first_are_judged_as_well() {
    let server = Talker::legacy(json!({"tools": {}}));
    server.on("tools/call", |seen| {
        let pages =
            json!({"elicitations": [page("http://192.168.1.1/"), page("http://localhost/")]});
        rpc_error(200, seen, -32042, pages)
    });
    let (mut world, mcp, questions) = asking(&server, URL);
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    assert!(questions.list().is_empty());
    let outcome = call.outcome().unwrap();
    let is_left = matches!(&outcome, Err(Error::Rpc(error)) if error.code == -32042);
    assert!(is_left, "{outcome:?}");
}
