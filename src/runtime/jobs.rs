//! The table of jobs, and the object's alarm.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use async_trait::async_trait;
use wasm_bindgen::prelude::*;
use worker::{SqlStorage, SqlStorageValue, Storage};

use super::storage::{KeyValue, refused, rows, text};
use crate::ports::{Alarm, JobRow, JobStore, StoreError, Timestamp};

/// Column for column the table of the TypeScript package.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS cf_agents_jobs (
    id TEXT PRIMARY KEY NOT NULL,
    capability TEXT NOT NULL,
    fn TEXT NOT NULL,
    time INTEGER NOT NULL,
    payload TEXT,
    retry_options TEXT,
    singleflight INTEGER NOT NULL DEFAULT 0,
    hung_timeout_seconds INTEGER,
    exclusive INTEGER NOT NULL DEFAULT 0,
    recovery_loop INTEGER NOT NULL DEFAULT 0,
    running INTEGER NOT NULL DEFAULT 0,
    execution_started_at INTEGER,
    created_at INTEGER NOT NULL DEFAULT (unixepoch())
) WITHOUT ROWID";
const EXISTS: &str = "SELECT 1 FROM sqlite_master WHERE name = 'cf_agents_jobs'";
const LIST: &str = "SELECT id, capability, fn, time, payload, retry_options, singleflight,
        hung_timeout_seconds, exclusive, recovery_loop, running, execution_started_at
    FROM cf_agents_jobs ORDER BY time, created_at, id";
const GET: &str = "SELECT id, capability, fn, time, payload, retry_options, singleflight,
        hung_timeout_seconds, exclusive, recovery_loop, running, execution_started_at
    FROM cf_agents_jobs WHERE id = ?";
const PUT: &str = "INSERT OR REPLACE INTO cf_agents_jobs
    (id, capability, fn, time, payload, retry_options, singleflight, hung_timeout_seconds,
        exclusive, recovery_loop, running, execution_started_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const DELETE: &str = "DELETE FROM cf_agents_jobs WHERE id = ? RETURNING id";
const SET_STARTED: &str =
    "UPDATE cf_agents_jobs SET running = ?, execution_started_at = ? WHERE id = ?";
const RESCHEDULE: &str = "UPDATE cf_agents_jobs
    SET time = ?, running = 0, execution_started_at = NULL WHERE id = ?";

/// Not a column: the table is shared with the TypeScript package.
const STRIKES: &str = "workers_agents:job_strikes";

pub(crate) struct SqlJobStore {
    sql: SqlStorage,
    kv: KeyValue,
}

impl SqlJobStore {
    pub(crate) fn new(storage: &Storage) -> Self {
        Self {
            sql: storage.sql(),
            kv: KeyValue::of(storage),
        }
    }

    fn run(
        &self,
        statement: &str,
        values: Vec<SqlStorageValue>,
    ) -> Result<Vec<Vec<SqlStorageValue>>, StoreError> {
        if rows(&self.sql, EXISTS, Vec::new())?.is_empty() {
            return Ok(Vec::new());
        }
        rows(&self.sql, statement, values)
    }

    fn all_strikes(&self) -> Result<BTreeMap<String, u32>, StoreError> {
        let stored = self.kv.get(STRIKES)?.as_string();
        // What cannot be read is as good as none: it is only counted up to a handful.
        Ok(stored
            .and_then(|json| serde_json::from_str(&json).ok())
            .unwrap_or_default())
    }
}

impl JobStore for SqlJobStore {
    fn list(&self) -> Result<Vec<JobRow>, StoreError> {
        let rows = self.run(LIST, Vec::new())?;
        Ok(rows.into_iter().filter_map(decode).collect())
    }

    fn get(&self, id: &str) -> Result<Option<JobRow>, StoreError> {
        let rows = self.run(GET, vec![text(id)])?;
        Ok(rows.into_iter().find_map(decode))
    }

    fn put(&self, row: &JobRow) -> Result<(), StoreError> {
        rows(&self.sql, CREATE, Vec::new())?;
        let optional =
            |value: &Option<String>| value.as_deref().map_or(SqlStorageValue::Null, text);
        let flag = |flag: bool| SqlStorageValue::Integer(flag.into());
        let values = vec![
            text(&row.id),
            text(&row.owner),
            text(&row.function),
            integer(row.at),
            optional(&row.payload),
            optional(&row.retry),
            flag(row.single_flight),
            row.hung_after.map_or(SqlStorageValue::Null, integer),
            flag(row.exclusive),
            flag(row.recovery_loop),
            flag(row.started_at.is_some()),
            row.started_at.map_or(SqlStorageValue::Null, integer),
        ];
        rows(&self.sql, PUT, values).map(drop)
    }

    fn delete(&self, id: &str) -> Result<bool, StoreError> {
        Ok(!self.run(DELETE, vec![text(id)])?.is_empty())
    }

    fn set_started(&self, id: &str, at: Option<Timestamp>) -> Result<(), StoreError> {
        let values = vec![
            SqlStorageValue::Integer(at.is_some().into()),
            at.map_or(SqlStorageValue::Null, integer),
            text(id),
        ];
        self.run(SET_STARTED, values).map(drop)
    }

    fn reschedule(&self, id: &str, at: Timestamp) -> Result<(), StoreError> {
        self.run(RESCHEDULE, vec![integer(at), text(id)]).map(drop)
    }

    fn strikes(&self, id: &str) -> Result<u32, StoreError> {
        Ok(self.all_strikes()?.get(id).copied().unwrap_or_default())
    }

    fn set_strikes(&self, id: &str, strikes: u32) -> Result<(), StoreError> {
        let mut all = self.all_strikes()?;
        if all.get(id).copied().unwrap_or_default() == strikes {
            return Ok(());
        }
        if strikes == 0 {
            all.remove(id);
        } else {
            all.insert(id.to_owned(), strikes);
        }
        if all.is_empty() {
            return self.kv.remove(STRIKES);
        }
        let json = serde_json::to_string(&all).map_err(|error| StoreError(error.to_string()))?;
        self.kv.put(STRIKES, &JsValue::from_str(&json))
    }
}

/// Times in milliseconds stay far below 2^53, where numbers stop being exact.
fn integer(value: u64) -> SqlStorageValue {
    SqlStorageValue::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// A row that is none of a job's is left out.
fn decode(row: Vec<SqlStorageValue>) -> Option<JobRow> {
    let columns: [SqlStorageValue; 12] = row.try_into().ok()?;
    let [
        id,
        owner,
        function,
        at,
        payload,
        retry,
        single_flight,
        hung_after,
        exclusive,
        recovery_loop,
        running,
        started_at,
    ] = columns;
    let flag = |value: &SqlStorageValue| number(value).is_some_and(|flag| flag != 0);
    let is_running = flag(&running);
    Some(JobRow {
        id: string(id)?,
        owner: string(owner)?,
        function: string(function)?,
        at: number(&at)?,
        payload: string(payload),
        retry: string(retry),
        single_flight: flag(&single_flight),
        hung_after: number(&hung_after),
        exclusive: flag(&exclusive),
        recovery_loop: flag(&recovery_loop),
        started_at: number(&started_at).filter(|_| is_running),
    })
}

fn string(value: SqlStorageValue) -> Option<String> {
    match value {
        SqlStorageValue::String(text) => Some(text),
        _ => None,
    }
}

fn number(value: &SqlStorageValue) -> Option<u64> {
    match *value {
        SqlStorageValue::Integer(number) => Some(u64::try_from(number).unwrap_or_default()),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "dropping the fraction and saturating are wanted"
        )]
        SqlStorageValue::Float(number) => Some(number as u64),
        SqlStorageValue::Boolean(flag) => Some(flag.into()),
        _ => None,
    }
}

/// The alarm of an object.
#[derive(Clone)]
pub(crate) struct ObjectAlarm(Rc<Inner>);

struct Inner {
    storage: Storage,
    raw: StorageExt,
    /// How often it was set, by which a `clear` on its way finds out that it comes too late.
    sets: Cell<u64>,
}

impl ObjectAlarm {
    pub(crate) fn new(storage: Storage) -> Self {
        let raw = JsValue::from(storage.as_raw()).unchecked_into();
        Self(Rc::new(Inner {
            storage,
            raw,
            sets: Cell::new(0),
        }))
    }
}

#[async_trait(?Send)]
impl Alarm for ObjectAlarm {
    fn set(&self, at: Timestamp) {
        self.0.sets.set(self.0.sets.get().wrapping_add(1));
        #[expect(clippy::cast_precision_loss, reason = "milliseconds stay below 2^53")]
        let promise = self.0.raw.set_alarm(at as f64);
        wasm_bindgen_futures::spawn_local(async move {
            let outcome = match promise {
                Ok(promise) => wasm_bindgen_futures::JsFuture::from(promise).await,
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                worker::console_error!("setting the alarm: {error:?}");
            }
        });
    }

    fn clear(&self, at: Timestamp) {
        let this = self.0.clone();
        wasm_bindgen_futures::spawn_local(async move {
            let sets = this.sets.get();
            let set_for = this.storage.get_alarm().await;
            let is_ours = matches!(set_for, Ok(Some(time)) if u64::try_from(time) == Ok(at));
            if is_ours
                && this.sets.get() == sets
                && let Err(error) = this.storage.delete_alarm().await
            {
                worker::console_error!("clearing the alarm: {error}");
            }
        });
    }

    async fn get(&self) -> Result<Option<Timestamp>, StoreError> {
        let time = self.0.storage.get_alarm().await.map_err(refused)?;
        Ok(time.map(|time| u64::try_from(time).unwrap_or_default()))
    }
}

/// Ends the object: it is gone from memory a moment later. Calls that it has not answered fail.
pub(crate) fn abort(state: &worker::State, reason: &str) {
    abort_soon(&JsValue::from(state.as_raw()), reason);
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(extends = js_sys::Object)]
    type StorageExt;
    #[wasm_bindgen(method, catch, js_name = setAlarm)]
    fn set_alarm(this: &StorageExt, at: f64) -> Result<js_sys::Promise, JsValue>;
}

#[wasm_bindgen(module = "/src/runtime/abort.js")]
extern "C" {
    #[wasm_bindgen(js_name = abortSoon)]
    fn abort_soon(state: &JsValue, reason: &str);
}
