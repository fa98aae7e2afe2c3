//! What must be so, told from the outside: a model in plain data that follows what was asked for and
//! what was seen.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;
use workers_agents::ports::{CatalogStore as _, ServerRow};
use workers_agents::{
    CatalogFreshness, ConnectionState as S, Error, McpClientManager, ReconnectPolicy,
    RegisterServer, RetryOptions, ServerFilter, TransportKind,
};

use super::object::{Entry, Outcome, Outside, Sent};
use super::peers::OWNER;

/// What is said about a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub name: String,
    pub server: usize,
    pub owner: u32,
    pub is_auto: bool,
    pub policy: Option<ReconnectPolicy>,
    pub attempts: u32,
}

impl Spec {
    pub fn peer(&self) -> (usize, u32) {
        (self.server, self.owner)
    }

    fn same_peer(&self, other: &Self) -> bool {
        self.peer() == other.peer() && self.is_auto == other.is_auto
    }

    pub fn registration(&self, outside: &Outside) -> RegisterServer {
        let kind = if self.is_auto {
            TransportKind::Auto
        } else {
            TransportKind::StreamableHttp
        };
        // Without a random delay a seed says all.
        let mut retry = RetryOptions::CONNECT;
        retry.max_attempts = self.attempts;
        retry.base_delay = std::time::Duration::from_millis(1);
        retry.max_delay = retry.base_delay;
        let url = outside.servers[self.server].url.clone();
        let server = RegisterServer::new(&*self.name, url)
            .header(OWNER, self.owner.to_string())
            .transport(kind)
            .retry(retry);
        match self.policy {
            Some(policy) => server.reconnect(policy),
            None => server,
        }
    }

    /// What a row says.
    fn read(row: &ServerRow, outside: &Outside) -> Option<Self> {
        let options: Value = serde_json::from_str(row.server_options.as_deref()?).ok()?;
        let mut servers = outside.servers.iter();
        let transport = &options["transport"];
        let policy = options["reconnect"].as_str();
        Some(Self {
            name: row.name.clone(),
            server: servers.position(|server| server.url == row.server_url)?,
            owner: transport["requestInit"]["headers"][OWNER]
                .as_str()?
                .parse()
                .ok()?,
            is_auto: transport["type"] == "auto",
            policy: policy.and_then(ReconnectPolicy::parse),
            attempts: u32::try_from(options["retry"]["maxAttempts"].as_u64()?).ok()?,
        })
    }
}

#[derive(Debug, Clone)]
pub enum Wish {
    Register(Spec),
    Connect,
    Discover,
    Call,
    Wait(Option<u64>),
    Close,
    CloseAll,
    Remove,
    Rename(String),
}

/// Something that was asked for.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Operation {
    pub wish: Wish,
    pub id: String,
    asked_at: u64,
    is_begun: bool,
    is_over: bool,
    has_succeeded: bool,
    /// What it has changed, if it has: whether there was something.
    committed: Option<bool>,
    /// Whether the id was unknown, and the new one taken, at some time meanwhile.
    was_absent: bool,
    was_taken: bool,
    /// Whom the id meant meanwhile.
    peers: BTreeSet<(usize, u32)>,
    runs: u32,
}

impl Operation {
    pub fn new(wish: Wish, id: String, now: u64) -> Self {
        Self {
            wish,
            id,
            asked_at: now,
            is_begun: false,
            is_over: false,
            has_succeeded: false,
            committed: None,
            was_absent: false,
            was_taken: false,
            peers: BTreeSet::new(),
            runs: 0,
        }
    }

    fn is_under_way(&self) -> bool {
        self.is_begun && !self.is_over
    }

    pub fn is_pending(&self) -> bool {
        !self.is_over
    }

    fn opens(&self) -> bool {
        matches!(self.wish, Wish::Connect | Wish::Discover | Wish::Call)
    }

    pub fn changes_rows(&self) -> bool {
        matches!(
            self.wish,
            Wish::Register(_) | Wish::Remove | Wish::Rename(_)
        )
    }
}

/// Whether a server may be sent anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// Nobody has asked for it.
    NotYet,
    Yes,
    Closed,
}

#[derive(Debug, Clone)]
struct Known {
    spec: Spec,
    /// The version of its tools when it was registered as this peer.
    since: u32,
    /// Whether it has listed its tools to this peer.
    has_listed: bool,
    ask: Ask,
    /// Whether it comes back by itself once the object is used.
    comes_back: bool,
    /// Whether nothing has been tried since it was registered.
    is_untried: bool,
}

/// How the object came to life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waking {
    Used,
    ByAlarm,
}

pub struct Judge {
    servers: BTreeMap<String, Known>,
    pub operations: Vec<Operation>,
    /// Peers that ever were.
    peers: BTreeSet<(usize, u32)>,
    /// Ids between which keys were being moved when the object was evicted.
    interrupted: BTreeSet<String>,
    default: ReconnectPolicy,
    has_come_back: bool,
    is_traced: bool,
    /// Rows that have been read: that takes time.
    read: RefCell<HashMap<(String, String, String), Option<Spec>>>,
}

type Verdict = Result<(), String>;

impl Judge {
    pub fn new(default: ReconnectPolicy) -> Self {
        Self {
            servers: BTreeMap::new(),
            operations: Vec::new(),
            peers: BTreeSet::new(),
            interrupted: BTreeSet::new(),
            default,
            has_come_back: true,
            is_traced: std::env::var("MODEL_TRACE").is_ok(),
            read: RefCell::default(),
        }
    }

    pub fn spec(&self, id: &str) -> Option<&Spec> {
        self.servers.get(id).map(|known| &known.spec)
    }

    pub fn ids(&self) -> Vec<String> {
        self.servers.keys().cloned().collect()
    }

    pub fn policy(&self, id: &str) -> ReconnectPolicy {
        let spec = self.spec(id).unwrap();
        spec.policy.unwrap_or(self.default)
    }

    /// Servers that other ids mean, or are about to.
    pub fn taken_servers(&self, id: &str) -> BTreeSet<usize> {
        let is_moving = self.is_being_renamed(id);
        let others = |other: &String| *other != id || is_moving;
        let known = self.servers.iter().filter(|(other, _)| others(other));
        let known = known.map(|(_, known)| known.spec.server);
        let asked = self
            .operations
            .iter()
            .filter(|operation| operation.is_pending() && (operation.id != id || is_moving));
        let asked = asked.filter_map(|operation| match &operation.wish {
            Wish::Register(spec) => Some(spec.server),
            _ => None,
        });
        known.chain(asked).collect()
    }

    pub fn is_being_renamed(&self, id: &str) -> bool {
        self.operations.iter().any(|operation| {
            operation.is_pending()
                && matches!(&operation.wish, Wish::Rename(to) if operation.id == id || to == id)
        })
    }

    pub fn is_being_changed(&self, id: &str) -> bool {
        self.is_being_renamed(id)
            || self.operations.iter().any(|operation| {
                operation.is_pending() && operation.changes_rows() && operation.id == id
            })
    }

    /// The object was evicted and is awake again.
    pub fn woken(&mut self, waking: Waking, outside: &Outside) {
        for operation in &mut self.operations {
            if let Wish::Rename(to) = &operation.wish
                && operation.is_under_way()
            {
                self.interrupted.extend([operation.id.clone(), to.clone()]);
            }
            operation.is_over = true;
        }
        let default = self.default;
        for (id, known) in &mut self.servers {
            let row = outside.catalogs.rows.borrow();
            let is_listed = row.contains_key(id);
            known.comes_back = match known.spec.policy.unwrap_or(default) {
                ReconnectPolicy::Eager => true,
                ReconnectPolicy::Lazy => !is_listed,
                _ => false,
            };
            known.ask = Ask::NotYet;
            known.is_untried = false;
        }
        self.has_come_back = false;
        if waking == Waking::Used {
            self.come_back();
        }
    }

    pub fn come_back(&mut self) {
        if self.has_come_back {
            return;
        }
        self.has_come_back = true;
        for known in self.servers.values_mut() {
            if known.comes_back && known.ask == Ask::NotYet {
                known.ask = Ask::Yes;
            }
        }
    }

    /// Follows what has happened since the last time.
    pub fn follow(&mut self, outside: &Outside) -> Verdict {
        if let Some(fault) = outside.faults.borrow().first() {
            return Err(fault.clone());
        }
        let entries = outside.log.take();
        for entry in entries {
            if self.is_traced {
                eprintln!("{} {entry:?}", outside.now.get());
            }
            self.entry(entry, outside)?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: Entry, outside: &Outside) -> Verdict {
        match entry {
            Entry::Begun(number) => self.begun(number),
            Entry::Ended(number, outcome) => return self.ended(number, &outcome, outside),
            Entry::Put(row) => return self.put(&row, outside),
            Entry::Deleted(id, existed) => return self.deleted(&id, existed),
            Entry::Renamed(from, to) => return self.renamed(&from, &to),
            Entry::Job(id) => {
                let default = self.default;
                if let Some(known) = self.servers.get_mut(&id)
                    && known.ask == Ask::NotYet
                    && known.spec.policy.unwrap_or(default) == ReconnectPolicy::Eager
                {
                    known.ask = Ask::Yes;
                }
            }
            Entry::Sent(sent) => return self.sent(&sent),
            Entry::Listed(server, owner) => {
                let mut known = self.servers.values_mut();
                if let Some(known) = known.find(|known| known.spec.peer() == (server, owner)) {
                    known.has_listed = true;
                }
            }
            Entry::Ran(number) => {
                let operation = &mut self.operations[number];
                operation.runs += 1;
                if operation.runs > 1 {
                    return Err("a tool ran twice for one call".into());
                }
            }
        }
        Ok(())
    }

    fn begun(&mut self, number: usize) {
        let operation = &mut self.operations[number];
        operation.is_begun = true;
        if let Wish::Wait(_) = operation.wish {
            self.come_back();
        } else if operation.opens()
            && let Some(known) = self.servers.get_mut(&operation.id)
        {
            let revives = matches!(operation.wish, Wish::Connect);
            if known.ask != Ask::Closed || revives {
                known.ask = Ask::Yes;
            }
        }
        self.look_at_operations();
    }

    /// Keeps account of what ids mean to the operations under way.
    fn look_at_operations(&mut self) {
        let servers = &self.servers;
        let under_way = |operation: &&mut Operation| operation.is_under_way();
        for operation in self.operations.iter_mut().filter(under_way) {
            match servers.get(&operation.id) {
                Some(known) => drop(operation.peers.insert(known.spec.peer())),
                None => operation.was_absent = true,
            }
            if let Wish::Rename(to) = &operation.wish {
                operation.was_taken |= servers.contains_key(to);
            }
        }
    }

    fn under_way(&mut self, is_it: impl Fn(&Operation) -> bool) -> Option<&mut Operation> {
        let mut operations = self.operations.iter_mut();
        operations.find(|operation| {
            operation.is_under_way() && operation.committed.is_none() && is_it(operation)
        })
    }

    fn put(&mut self, row: &ServerRow, outside: &Outside) -> Verdict {
        let Some(spec) = Spec::read(row, outside) else {
            return Err("a row cannot be read".into());
        };
        let asked = self.under_way(|operation| {
            operation.id == row.id
                && matches!(&operation.wish, Wish::Register(asked) if *asked == spec)
        });
        let is_asked = asked.is_some_and(|asked| asked.committed.replace(true).is_none());
        if !is_asked {
            // Renaming writes the row again.
            let is_same = self
                .servers
                .get(&row.id)
                .is_some_and(|known| known.spec == spec);
            return is_same
                .then_some(())
                .ok_or_else(|| format!("nobody asked for {row:?}"));
        }
        let version = outside.servers[spec.server].version.get();
        let before = self.servers.get(&row.id);
        let is_same = before.is_some_and(|before| before.spec.same_peer(&spec));
        let is_kept = is_same && before.is_some_and(|before| before.ask != Ask::Closed);
        let mut known = match before {
            Some(before) if is_same => Known {
                spec,
                ..before.clone()
            },
            _ => Known {
                spec,
                since: version,
                has_listed: false,
                ask: Ask::NotYet,
                comes_back: true,
                is_untried: true,
            },
        };
        if !is_kept {
            known.ask = Ask::NotYet;
            known.is_untried = true;
        }
        known.comes_back &= known.spec.policy.unwrap_or(self.default) != ReconnectPolicy::Never;
        self.peers.insert(known.spec.peer());
        self.servers.insert(row.id.clone(), known);
        self.look_at_operations();
        Ok(())
    }

    fn deleted(&mut self, id: &str, existed: bool) -> Verdict {
        let asked = self
            .under_way(|operation| operation.id == id && matches!(operation.wish, Wish::Remove));
        let Some(asked) = asked else {
            return Err(format!("nobody asked to delete {id}"));
        };
        asked.committed = Some(existed);
        if self.servers.remove(id).is_some() != existed {
            return Err(format!(
                "deleting {id} found a row, or none, against all expectation"
            ));
        }
        self.look_at_operations();
        Ok(())
    }

    fn renamed(&mut self, from: &str, to: &str) -> Verdict {
        let asked = self.under_way(|operation| {
            operation.id == from && matches!(&operation.wish, Wish::Rename(other) if other == to)
        });
        let Some(asked) = asked else {
            return Err(format!("nobody asked to rename {from} to {to}"));
        };
        asked.committed = Some(true);
        let Some(mut known) = self.servers.remove(from) else {
            return Err("there was nothing to rename".into());
        };
        if known.ask == Ask::NotYet
            && known.spec.policy.unwrap_or(self.default) == ReconnectPolicy::Eager
        {
            // What waits to be opened is opened under the new id.
            known.ask = Ask::Yes;
        }
        if self.servers.insert(to.to_owned(), known).is_some() {
            return Err("the new id was taken".into());
        }
        self.look_at_operations();
        Ok(())
    }

    fn sent(&mut self, sent: &Sent) -> Verdict {
        let peer = (sent.server, sent.owner);
        if sent.is_ending() {
            return if self.peers.contains(&peer) {
                Ok(())
            } else {
                Err(format!("an unknown peer: {sent:?}"))
            };
        }
        let is_it = |known: &&mut Known| known.spec.peer() == peer;
        let Some(known) = self.servers.values_mut().find(is_it) else {
            return Err(format!(
                "nobody is registered there, or with other headers: {sent:?}"
            ));
        };
        known.is_untried = false;
        let is_wanted = known.ask == Ask::Yes
            || self.operations.iter().any(|operation| {
                operation.is_under_way() && operation.opens() && operation.peers.contains(&peer)
            });
        if !is_wanted {
            return Err(format!("nobody has asked for {sent:?}: {known:?}"));
        }
        Ok(())
    }

    fn ended(&mut self, number: usize, outcome: &Outcome, outside: &Outside) -> Verdict {
        let operation = &mut self.operations[number];
        operation.is_over = true;
        operation.has_succeeded = !matches!(outcome, Outcome::Failed(_));
        let committed = operation.committed;
        // What is registered as it is already is not written again.
        let known = self.servers.get(&operation.id).map(|known| &known.spec);
        let is_no_news = matches!(&operation.wish, Wish::Register(spec) if known == Some(spec));
        if let Outcome::Failed(error) = outcome {
            let is_odd = match error {
                Error::UnknownServer(_) => !operation.was_absent,
                Error::ServerIdInUse { .. } => !operation.was_taken,
                Error::NotConnected { .. }
                | Error::Closed
                | Error::Timeout { .. }
                | Error::NoTransport { .. }
                | Error::Transport(_)
                | Error::Rpc(_)
                | Error::Protocol(_) => {
                    operation.changes_rows() || matches!(operation.wish, Wish::Wait(_))
                }
                _ => true,
            };
            if is_odd || operation.changes_rows() && committed.is_some() {
                return Err(format!("{operation:?} failed with {error}"));
            }
            return Ok(());
        }
        match (&operation.wish, outcome) {
            (Wish::Register(_) | Wish::Rename(_), _) if committed.is_none() && !is_no_news => Err(
                format!("it said that it had changed something: {operation:?}"),
            ),
            (Wish::Remove, Outcome::Existed(existed)) if committed != Some(*existed) => {
                Err(format!("it said the opposite of what was: {operation:?}"))
            }
            (Wish::Call, Outcome::Text(text)) => {
                let mut words = text.split(' ').map(str::parse::<usize>);
                let mut word = || words.next().unwrap().unwrap();
                let (server, owner) = (word(), u32::try_from(word()).unwrap());
                if word() != number || operation.runs != 1 {
                    return Err("it got the answer of another call".into());
                }
                if !operation.peers.contains(&(server, owner)) {
                    return Err("another server answered".into());
                }
                Ok(())
            }
            (Wish::Wait(Some(limit)), _) => {
                let took = outside.now.get() - operation.asked_at;
                if took > *limit {
                    Err(format!("it took {took} ms"))
                } else {
                    Ok(())
                }
            }
            (Wish::Close, _) => {
                let id = operation.id.clone();
                if let Some(known) = self.servers.get_mut(&id) {
                    known.ask = Ask::Closed;
                }
                Ok(())
            }
            (Wish::CloseAll, _) => {
                for known in self.servers.values_mut() {
                    known.ask = Ask::Closed;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What is so at any moment.
    pub fn check(&self, mcp: &McpClientManager, outside: &Outside) -> Verdict {
        self.check_rows(outside)?;
        self.check_belongings(outside)?;
        self.check_connections(mcp, outside)
    }

    fn check_rows(&self, outside: &Outside) -> Verdict {
        let rows = outside.table.rows.borrow();
        if rows.len() != self.servers.len() {
            return Err(format!(
                "{} rows for {} servers",
                rows.len(),
                self.servers.len()
            ));
        }
        for row in rows.iter() {
            let known = self.servers.get(&row.id);
            let mut read = self.read.borrow_mut();
            let text = row.server_options.clone().unwrap_or_default();
            let key = (row.name.clone(), row.server_url.clone(), text);
            let spec = read
                .entry(key)
                .or_insert_with(|| Spec::read(row, outside))
                .clone();
            if known.map(|known| &known.spec) != spec.as_ref() {
                return Err(format!(
                    "the row of {} says {spec:?}, not {known:?}",
                    row.id
                ));
            }
        }
        Ok(())
    }

    /// Whatever is stored belongs to a server.
    fn check_belongings(&self, outside: &Outside) -> Verdict {
        for head in outside.catalogs.heads().unwrap() {
            let known = self.servers.get(&head.server_id);
            let url = known.map(|known| &outside.servers[known.spec.server].url);
            if url != Some(&head.server_url) {
                return Err(format!("an orphan catalogue of {}", head.server_id));
            }
        }
        for task in outside.tasks.rows.borrow().iter() {
            let known = self.servers.get(&task.server_id);
            let peer = known.map(|known| format!("{:?}", known.spec.peer()));
            if peer.as_ref() != Some(&task.task_id) {
                return Err(format!(
                    "an orphan task of {}: {}",
                    task.server_id, task.task_id
                ));
            }
        }
        for job in outside.jobs.jobs.borrow().iter() {
            let id = job.id.strip_prefix("mcp:reconnect:").unwrap();
            match self.servers.get(id) {
                None => return Err(format!("an orphan job of {id}")),
                Some(known) if known.ask == Ask::Closed => {
                    return Err(format!("a job for {id}, which is closed"));
                }
                Some(_) => {}
            }
        }
        for (key, value) in outside.keys.values.borrow().iter() {
            let id = key.split('/').nth(2).unwrap();
            if self.is_being_changed(id) {
                continue;
            }
            let known = self.servers.get(id);
            if known.is_none() && self.interrupted.contains(id) {
                continue;
            }
            let server = known.map(|known| known.spec.server.to_string());
            if server.as_ref() != Some(value) {
                return Err(format!("an orphan key {key} of server {value}"));
            }
        }
        Ok(())
    }

    /// How many keys nobody can explain, when there are no servers.
    pub fn orphan_keys(&self, outside: &Outside) -> usize {
        let keys = outside.keys.values.borrow();
        let ids = keys.keys().map(|key| key.split('/').nth(2).unwrap());
        ids.filter(|id| !self.interrupted.contains(*id)).count()
    }

    fn check_connections(&self, mcp: &McpClientManager, outside: &Outside) -> Verdict {
        let mut listed: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for tool in mcp.list_tools(&ServerFilter::all()) {
            let names = listed.entry(tool.server_id.to_string()).or_default();
            names.push(tool.item.name().to_owned());
        }
        if let Some(id) = listed.keys().find(|id| !self.servers.contains_key(*id)) {
            return Err(format!("tools of {id}, which is gone"));
        }
        for (id, known) in &self.servers {
            let info = mcp.connection(id);
            let Some(info) = info else {
                if known.ask == Ask::Closed {
                    continue;
                }
                return Err(format!("{id} has no connection, and was not closed"));
            };
            if info.state == S::Ready && info.freshness == CatalogFreshness::Unknown {
                return Err(format!("{id} is ready, and its lists are not known"));
            }
            let tools = listed.remove(id).unwrap_or_default();
            let server = &outside.servers[known.spec.server];
            let versions = known.since..=server.version.get();
            let is_offer = versions
                .into_iter()
                .any(|version| server.tools(version) == tools);
            let is_empty = tools.is_empty() && !info.freshness_is_known();
            if !is_offer && !is_empty || !tools.is_empty() && !known.has_listed {
                return Err(format!("{id} lists {tools:?}: {known:?}"));
            }
        }
        Ok(())
    }

    /// How many of the last operations, which are calls, have succeeded.
    pub fn successes(&self, calls: usize) -> usize {
        let last = self.operations.iter().rev();
        let calls = last
            .filter(|operation| matches!(operation.wish, Wish::Call))
            .take(calls);
        calls.filter(|operation| operation.has_succeeded).count()
    }

    /// What is so when nothing can go on, and no time is waited for.
    pub fn check_rest(&self, mcp: &McpClientManager, outside: &Outside) -> Verdict {
        if let Some(operation) = self
            .operations
            .iter()
            .find(|operation| operation.is_pending())
        {
            return Err(format!("it waits for nothing: {operation:?}"));
        }
        for (id, known) in &self.servers {
            let Some(info) = mcp.connection(id) else {
                continue;
            };
            let jobs = outside.jobs.jobs.borrow();
            let is_planned = jobs
                .iter()
                .any(|job| job.id == format!("mcp:reconnect:{id}"));
            let is_odd = match info.state {
                S::Discovering => true,
                S::Connecting => self.has_come_back && !known.is_untried,
                S::Reconnecting => !is_planned,
                S::Ready | S::Connected => is_planned && info.freshness == CatalogFreshness::Fresh,
                _ => false,
            };
            if is_odd {
                return Err(format!(
                    "{id} rests as {}, planned: {is_planned}: {known:?} {:?}",
                    info.state, info.error
                ));
            }
        }
        Ok(())
    }

    /// What is so when all servers are well and the object has woken.
    pub fn check_recovered(&self, mcp: &McpClientManager, outside: &Outside) -> Verdict {
        for (id, known) in &self.servers {
            let info = mcp
                .connection(id)
                .ok_or_else(|| format!("{id} is not live"))?;
            let expected = match self.policy(id) {
                ReconnectPolicy::Never => S::NotConnected,
                _ => S::Ready,
            };
            if info.state != expected {
                return Err(format!("{id} is {} {:?}", info.state, info.error));
            }
            if self.policy(id) == ReconnectPolicy::Eager {
                let server = &outside.servers[known.spec.server];
                let filter = ServerFilter::all().server_id(id.as_str());
                let tools = mcp.list_tools(&filter);
                let names: Vec<_> = tools
                    .iter()
                    .map(|tool| tool.item.name().to_owned())
                    .collect();
                if names != server.tools(server.version.get()) {
                    return Err(format!("{id} lists {names:?}"));
                }
            }
        }
        Ok(())
    }
}

trait IsKnown {
    fn freshness_is_known(&self) -> bool;
}

impl IsKnown for workers_agents::ConnectionInfo {
    fn freshness_is_known(&self) -> bool {
        self.freshness != CatalogFreshness::Unknown
    }
}
