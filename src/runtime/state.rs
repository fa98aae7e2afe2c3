//! The table of the state that an object shares with its browsers: that of the TypeScript package.

use std::cell::Cell;

use worker::{SqlStorage, SqlStorageValue, Storage};

use super::storage::{rows, text};
use crate::ports::{StateStore, StoreError};

const EXISTS: &str = "SELECT 1 FROM sqlite_master WHERE name = 'cf_agents_state'";
const CREATE: &str = "CREATE TABLE IF NOT EXISTS cf_agents_state (
    id TEXT PRIMARY KEY NOT NULL,
    state TEXT
)";
const GET: &str = "SELECT state FROM cf_agents_state WHERE id = 'cf_state_row_id'";
const PUT: &str = "INSERT INTO cf_agents_state (id, state) VALUES ('cf_state_row_id', ?)
    ON CONFLICT (id) DO UPDATE SET state = excluded.state";

/// One row, made when the first state is stored.
pub(super) struct SqlStateStore {
    sql: SqlStorage,
    is_there: Cell<bool>,
}

impl SqlStateStore {
    pub(super) fn new(storage: &Storage) -> Self {
        Self {
            sql: storage.sql(),
            is_there: Cell::new(false),
        }
    }
}

impl StateStore for SqlStateStore {
    fn get(&self) -> Result<Option<String>, StoreError> {
        if !self.is_there.get() {
            if rows(&self.sql, EXISTS, Vec::new())?.is_empty() {
                return Ok(None);
            }
            self.is_there.set(true);
        }
        let row = rows(&self.sql, GET, Vec::new())?.into_iter().next();
        Ok(match row.and_then(|row| row.into_iter().next()) {
            Some(SqlStorageValue::String(state)) => Some(state),
            _ => None,
        })
    }

    fn put(&self, json: &str) -> Result<(), StoreError> {
        if !self.is_there.get() {
            rows(&self.sql, CREATE, Vec::new())?;
            self.is_there.set(true);
        }
        rows(&self.sql, PUT, vec![text(json)]).map(drop)
    }
}
