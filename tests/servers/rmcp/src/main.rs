//! The library of `tests/servers/README.md` on the Rust SDK: `rmcp-server [PORT]`. Sessions of the 2025 era are at
//! `/legacy`; every other path speaks all revisions that the SDK knows. It ends when its standard input closes.

mod library;

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::{env, io, process, thread};

use anyhow::Result;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;

use library::{Era, Library, Shelf};

type Endpoint = TowerToHyperService<StreamableHttpService<Library, LocalSessionManager>>;

fn endpoint(shelf: &Arc<Shelf>, era: Era) -> Endpoint {
    let shelf = Arc::clone(shelf);
    TowerToHyperService::new(StreamableHttpService::new(
        move || {
            if matches!(era, Era::Legacy) {
                writeln!(io::stdout(), "session begun")?;
            }
            Ok(Library::new(Arc::clone(&shelf), era))
        },
        Arc::default(),
        StreamableHttpServerConfig::default(),
    ))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    thread::spawn(end_with_parent);
    let port = env::args().nth(1).map_or(Ok(0), |port| port.parse())?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    writeln!(io::stdout(), "ready at http://{}", listener.local_addr()?)?;

    let shelf = Arc::default();
    let legacy = endpoint(&shelf, Era::Legacy);
    let all = endpoint(&shelf, Era::All);
    loop {
        let (stream, _) = listener.accept().await?;
        let (legacy, all) = (legacy.clone(), all.clone());
        let service = service_fn(move |request| {
            if request.uri().path() == "/legacy" {
                legacy.call(request)
            } else {
                all.call(request)
            }
        });
        // A client may go away at any time; that is no error of ours.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

fn end_with_parent() {
    // An error means as much as the end: nobody is there any more.
    let _ended = io::stdin().read_to_end(&mut Vec::new());
    process::exit(0);
}
