-- Jobs of orchestratord. Times are Unix milliseconds. Neither prompts nor outputs are stored: job_payloads holds the
-- prompt's token ids sealed under a key that lives in payload.keys only and is overwritten at the terminal event.

CREATE TABLE jobs (
  arrival          INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of admission
  job_id           TEXT NOT NULL UNIQUE,
  task_id          TEXT NOT NULL UNIQUE,
  session_id       TEXT,
  correlation_id   TEXT NOT NULL,
  request_hash     TEXT NOT NULL,                      -- SHA-256 of the request; tells a repeated call from another one
  priority         TEXT NOT NULL CHECK (priority IN ('interactive', 'batch')),
  model            TEXT NOT NULL,                      -- as the client wrote it
  model_ref        TEXT NOT NULL,                      -- what it resolved to
  model_facts      TEXT NOT NULL,                      -- JSON
  prompt_hash      TEXT NOT NULL,                      -- SHA-256 of the text
  params           TEXT NOT NULL,                      -- JSON: sampling parameters, numbers only
  max_tokens       INTEGER NOT NULL,
  seed             INTEGER NOT NULL,                   -- 64 bits, read as unsigned
  on_disconnect    TEXT NOT NULL CHECK (on_disconnect IN ('cancel', 'resume')),
  timeout_ms       INTEGER,
  deadline_ms      INTEGER,
  tokens_in        INTEGER NOT NULL,
  created_at       INTEGER NOT NULL,

  status           TEXT NOT NULL
                   CHECK (status IN ('queued', 'dispatched', 'running', 'completed', 'failed', 'cancelled')),
  attempts         INTEGER NOT NULL DEFAULT 0,
  worker_id        TEXT,
  pool_id          TEXT,
  dispatched_at    INTEGER,
  started_at       INTEGER,
  completed_at     INTEGER,
  outcome          TEXT CHECK (outcome IN ('success', 'error', 'timeout', 'cancelled')),
  stop_reason      TEXT,
  error_code       TEXT,
  last_error       TEXT,
  tokens_generated INTEGER NOT NULL DEFAULT 0,
  terminal_event   TEXT,                               -- JSON of the SSE event end or error
  last_event_id    TEXT,

  CHECK ((status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)),
  CHECK ((completed_at IS NULL) = (terminal_event IS NULL))
) STRICT;

CREATE INDEX jobs_status ON jobs (status);
CREATE INDEX jobs_worker_status ON jobs (worker_id, status);
CREATE INDEX jobs_completed_at ON jobs (completed_at) WHERE completed_at IS NOT NULL;

-- What waits. priority_rank makes text order irrelevant: 0 interactive, 1 batch.
CREATE TABLE queue (
  job_id           TEXT PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
  priority_rank    INTEGER NOT NULL,
  queued_at        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX queue_order ON queue (priority_rank, queued_at);

CREATE TABLE job_payloads (
  job_id           TEXT PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
  key_slot         INTEGER NOT NULL UNIQUE,
  nonce            BLOB NOT NULL,
  ciphertext       BLOB NOT NULL                       -- AES-256-GCM, tag appended; associated data: job_id
) STRICT;

-- Progress of running streams, for operators. Correctness does not lean on it: a client's Last-Event-ID proves itself.
CREATE TABLE sse_checkpoints (
  job_id           TEXT PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
  last_event_seq   INTEGER NOT NULL,
  last_event_type  TEXT NOT NULL,
  prefix_hash      TEXT NOT NULL,
  updated_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Pool managers that registered; asked for their state at start.
CREATE TABLE pools (
  pool_id          TEXT PRIMARY KEY,
  endpoint         TEXT NOT NULL,
  updated_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
