-- Jobs of orchestratord in PostgreSQL: the tables of contracts/sql, and who owns them. Times are Unix
-- milliseconds. Neither prompts nor outputs are stored: job_payloads holds the prompt's token ids sealed under a key that
-- lives in the state folder's payload.keys only and is overwritten at the terminal event.

CREATE TABLE jobs (
  arrival          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- order of admission: there is one writer
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
  max_tokens       BIGINT NOT NULL,
  seed             BIGINT NOT NULL,                   -- 64 bits, read as unsigned
  on_disconnect    TEXT NOT NULL CHECK (on_disconnect IN ('cancel', 'resume')),
  timeout_ms       BIGINT,
  deadline_ms      BIGINT,
  tokens_in        BIGINT NOT NULL,
  created_at       BIGINT NOT NULL,

  status           TEXT NOT NULL
                   CHECK (status IN ('queued', 'dispatched', 'running', 'completed', 'failed', 'cancelled')),
  attempts         BIGINT NOT NULL DEFAULT 0,
  worker_id        TEXT,
  pool_id          TEXT,
  dispatched_at    BIGINT,
  started_at       BIGINT,
  completed_at     BIGINT,
  outcome          TEXT CHECK (outcome IN ('success', 'error', 'timeout', 'cancelled')),
  stop_reason      TEXT,
  error_code       TEXT,
  last_error       TEXT,
  tokens_generated BIGINT NOT NULL DEFAULT 0,
  terminal_event   TEXT,                               -- JSON of the SSE event end or error
  last_event_id    TEXT,
  session_key      BIGINT,
  decode_time_ms   BIGINT NOT NULL DEFAULT 0,

  CHECK ((status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)),
  CHECK ((completed_at IS NULL) = (terminal_event IS NULL))
);

CREATE INDEX jobs_status ON jobs (status);
CREATE INDEX jobs_worker_status ON jobs (worker_id, status);
CREATE INDEX jobs_completed_at ON jobs (completed_at) WHERE completed_at IS NOT NULL;

CREATE INDEX jobs_session_key ON jobs (session_key) WHERE session_key IS NOT NULL;

-- What waits. priority_rank makes text order irrelevant: 0 interactive, 1 batch.
CREATE TABLE queue (
  job_id           TEXT PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
  priority_rank    BIGINT NOT NULL,
  queued_at        BIGINT NOT NULL
);

CREATE INDEX queue_order ON queue (priority_rank, queued_at);

CREATE TABLE job_payloads (
  job_id           TEXT PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
  key_slot         BIGINT NOT NULL UNIQUE,
  nonce            BYTEA NOT NULL,
  ciphertext       BYTEA NOT NULL                       -- AES-256-GCM, tag appended; associated data: job_id
);

-- Progress of running streams, for operators. Correctness does not lean on it: a client's Last-Event-ID proves itself.
CREATE TABLE sse_checkpoints (
  job_id           TEXT PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
  last_event_seq   BIGINT NOT NULL,
  last_event_type  TEXT NOT NULL,
  prefix_hash      TEXT NOT NULL,
  updated_at       BIGINT NOT NULL
);

-- Pool managers that registered; asked for their state at start.
CREATE TABLE pools (
  pool_id          TEXT PRIMARY KEY,
  endpoint         TEXT NOT NULL,
  updated_at       BIGINT NOT NULL,
  draining         BIGINT NOT NULL DEFAULT 0 CHECK (draining IN (0, 1))
);

-- Sessions: numbers that bound a client's jobs. What a session has used is the sum over its jobs.
CREATE TABLE sessions (
  session_key             BIGINT PRIMARY KEY,
  session_id              TEXT NOT NULL,
  created_at              BIGINT NOT NULL,
  touched_at              BIGINT NOT NULL,             -- last use that left no job
  token_budget            BIGINT,                      -- NULL: no limit
  time_budget_ms          BIGINT,
  cost_budget_nano        BIGINT,
  prompt_token_cost_nano  BIGINT NOT NULL,             -- prices are those of its first day
  output_token_cost_nano  BIGINT NOT NULL
);

-- Raised by every orchestratord that takes the store over, under the advisory lock: one that was cut off and comes back
-- sees that it is not the owner any more.
CREATE TABLE store_owner (
  only_row         BIGINT PRIMARY KEY CHECK (only_row = 1),
  epoch            BIGINT NOT NULL
);

INSERT INTO store_owner VALUES (1, 0);
