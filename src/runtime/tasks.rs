//! The table of tasks. It is made when the first task is, so objects without any have none.

use worker::{SqlStorage, SqlStorageValue, Storage};

use super::storage::{rows, text};
use crate::ports::{StoreError, TaskRow, TaskStore, Timestamp};

const CREATE: &str = "CREATE TABLE IF NOT EXISTS workers_agents_tasks (
    server_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    started_at TEXT NOT NULL,
    expires_at TEXT,
    PRIMARY KEY (server_id, task_id)
)";
const EXISTS: &str = "SELECT 1 FROM sqlite_master WHERE name = 'workers_agents_tasks'";
const LIST: &str = "SELECT server_id, task_id, tool, started_at, expires_at
    FROM workers_agents_tasks ORDER BY rowid";
const PUT: &str = "INSERT OR REPLACE INTO workers_agents_tasks
    (server_id, task_id, tool, started_at, expires_at) VALUES (?, ?, ?, ?, ?)";
const DELETE: &str = "DELETE FROM workers_agents_tasks WHERE server_id = ? AND task_id = ?";
const DELETE_OF_SERVER: &str = "DELETE FROM workers_agents_tasks WHERE server_id = ?";
const RENAME_SERVER: &str =
    "UPDATE OR REPLACE workers_agents_tasks SET server_id = ? WHERE server_id = ?";

pub(super) struct SqlTaskStore {
    sql: SqlStorage,
}

impl SqlTaskStore {
    pub(super) fn new(storage: &Storage) -> Self {
        Self { sql: storage.sql() }
    }

    fn exists(&self) -> Result<bool, StoreError> {
        Ok(!rows(&self.sql, EXISTS, Vec::new())?.is_empty())
    }

    fn run(&self, statement: &str, values: Vec<SqlStorageValue>) -> Result<(), StoreError> {
        if self.exists()? {
            rows(&self.sql, statement, values)?;
        }
        Ok(())
    }
}

impl TaskStore for SqlTaskStore {
    fn list(&self) -> Result<Vec<TaskRow>, StoreError> {
        if !self.exists()? {
            return Ok(Vec::new());
        }
        let rows = rows(&self.sql, LIST, Vec::new())?;
        Ok(rows.into_iter().filter_map(decode).collect())
    }

    fn put(&self, row: &TaskRow) -> Result<(), StoreError> {
        rows(&self.sql, CREATE, Vec::new())?;
        let expires_at = row
            .expires_at
            .map_or(SqlStorageValue::Null, |at| text(&at.to_string()));
        let values = vec![
            text(&row.server_id),
            text(&row.task_id),
            text(&row.tool),
            text(&row.started_at.to_string()),
            expires_at,
        ];
        rows(&self.sql, PUT, values).map(drop)
    }

    fn delete(&self, server_id: &str, task_id: &str) -> Result<(), StoreError> {
        self.run(DELETE, vec![text(server_id), text(task_id)])
    }

    fn delete_of_server(&self, server_id: &str) -> Result<(), StoreError> {
        self.run(DELETE_OF_SERVER, vec![text(server_id)])
    }

    fn rename_server(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.run(RENAME_SERVER, vec![text(to), text(from)])
    }
}

/// Times are texts: integers beyond 2^53 come back wrong. A row that is none of ours is left out.
fn decode(row: Vec<SqlStorageValue>) -> Option<TaskRow> {
    let mut columns = row.into_iter();
    let mut string = || match columns.next()? {
        SqlStorageValue::String(text) => Some(text),
        _ => None,
    };
    let time = |text: String| text.parse::<Timestamp>().ok();
    Some(TaskRow {
        server_id: string()?,
        task_id: string()?,
        tool: string()?,
        started_at: string().and_then(time)?,
        expires_at: string().and_then(time),
    })
}
