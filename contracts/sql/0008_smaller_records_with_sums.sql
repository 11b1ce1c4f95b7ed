-- A finished job costs a third of what it did: what many jobs say alike is one row that counts them, new digests are bytes
-- (older rows keep theirs as hex), and what another column says is not repeated. And its row may go while its sums are still needed.

-- What a job's model was. Goes with the last of its jobs: jobs_count says when, as a foreign key would read all jobs.
CREATE TABLE models (
  model_key        INTEGER PRIMARY KEY,
  model            TEXT NOT NULL,                      -- as the client wrote it
  model_ref        TEXT NOT NULL,                      -- what it resolved to
  model_facts      TEXT NOT NULL,                      -- JSON
  jobs_count       INTEGER NOT NULL DEFAULT 0,
  UNIQUE (model, model_ref, model_facts)
) STRICT;

-- Receipts without seed, digests and count of tokens, which are their jobs'. Goes with the last of its jobs.
CREATE TABLE receipts (
  receipt_key      INTEGER PRIMARY KEY,
  receipt          TEXT NOT NULL UNIQUE,               -- JSON
  jobs_count       INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE job_rows (
  arrival             INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of admission
  job_id              TEXT NOT NULL UNIQUE,
  task_id             TEXT,                               -- NULL: the job_id
  session_id          TEXT,
  session_key         INTEGER,                            -- tells two sessions of one id apart
  tenant_id           TEXT NOT NULL,                      -- whose quota it counts against
  correlation_id      TEXT NOT NULL,
  request_hash        ANY NOT NULL,                       -- SHA-256 of the request; tells a repeated call from another one
  priority            TEXT NOT NULL CHECK (priority IN ('interactive', 'batch')),
  model_key           INTEGER NOT NULL,
  prompt_hash         ANY NOT NULL,                       -- SHA-256 of the text
  params              TEXT NOT NULL,                      -- JSON: sampling parameters, numbers only
  max_tokens          INTEGER NOT NULL,
  seed                INTEGER NOT NULL,                   -- 64 bits, read as unsigned
  on_disconnect       TEXT NOT NULL CHECK (on_disconnect IN ('cancel', 'resume')),
  timeout_ms          INTEGER,
  deadline_ms         INTEGER,
  tokens_in           INTEGER NOT NULL,
  created_at          INTEGER NOT NULL,

  status              TEXT NOT NULL
                      CHECK (status IN ('queued', 'dispatched', 'running', 'completed', 'failed', 'cancelled')),
  attempts            INTEGER NOT NULL DEFAULT 0,
  worker_id           TEXT,
  worker_version      TEXT,                               -- of a live job: run again, it goes to a worker like that
  pool_id             TEXT,
  dispatched_at       INTEGER,
  started_at          INTEGER,
  completed_at        INTEGER,
  tokens_generated    INTEGER NOT NULL DEFAULT 0,
  decode_time_ms      INTEGER NOT NULL DEFAULT 0,
  terminal_event      TEXT,                               -- JSON of the SSE event end or error, without job_id and receipt
  last_event_id       TEXT,
  receipt_key         INTEGER,
  output_hash         ANY,                                -- of the receipt
  receipt_seed        INTEGER,                            -- NULL: the job's
  receipt_prompt_hash ANY,                                -- NULL: the job's

  CHECK ((status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)),
  CHECK ((completed_at IS NULL) = (terminal_event IS NULL))
) STRICT;

INSERT INTO models (model, model_ref, model_facts)
SELECT DISTINCT model, model_ref, model_facts FROM jobs;

INSERT INTO receipts (receipt)
SELECT DISTINCT json_set(json_extract(terminal_event, '$.receipt'), '$.seed', 0, '$.prompt_sha256', '',
                         '$.output_sha256', '', '$.tokens_out', 0)
FROM jobs
WHERE json_extract(terminal_event, '$.receipt') IS NOT NULL
  AND json_extract(terminal_event, '$.receipt.tokens_out') = json_extract(terminal_event, '$.tokens_out');

INSERT INTO job_rows
SELECT j.arrival, j.job_id, nullif(j.task_id, j.job_id), j.session_id, j.session_key, j.tenant_id, j.correlation_id,
       j.request_hash, j.priority, m.model_key, j.prompt_hash, j.params, j.max_tokens, j.seed, j.on_disconnect,
       j.timeout_ms, j.deadline_ms, j.tokens_in, j.created_at, j.status, j.attempts, j.worker_id,
       iif(j.completed_at IS NULL, j.worker_version, NULL), j.pool_id, j.dispatched_at, j.started_at, j.completed_at,
       j.tokens_generated, j.decode_time_ms,
       iif(r.receipt_key IS NULL, j.terminal_event, json_set(json_remove(j.terminal_event, '$.receipt'), '$.job_id', '')),
       j.last_event_id, r.receipt_key, json_extract(j.terminal_event, '$.receipt.output_sha256'),
       NULL, nullif(json_extract(j.terminal_event, '$.receipt.prompt_sha256'), j.prompt_hash)
FROM jobs j JOIN models m ON m.model = j.model AND m.model_ref = j.model_ref AND m.model_facts = j.model_facts
LEFT JOIN receipts r ON r.receipt = json_set(json_extract(j.terminal_event, '$.receipt'), '$.seed', 0, '$.prompt_sha256',
                                             '', '$.output_sha256', '', '$.tokens_out', 0)
ORDER BY j.arrival;

CREATE TABLE payload_rows (
  arrival          INTEGER PRIMARY KEY REFERENCES job_rows (arrival) ON DELETE CASCADE,
  key_slot         INTEGER NOT NULL,
  nonce            BLOB NOT NULL,
  ciphertext       BLOB NOT NULL                       -- AES-256-GCM, tag appended; associated data: job_id
) STRICT;
INSERT INTO payload_rows SELECT arrival, key_slot, nonce, ciphertext FROM job_payloads;

CREATE TABLE checkpoint_rows (
  job_id           TEXT PRIMARY KEY REFERENCES job_rows (job_id) ON DELETE CASCADE,
  last_event_seq   INTEGER NOT NULL,
  last_event_type  TEXT NOT NULL,
  prefix_hash      TEXT NOT NULL,
  updated_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO checkpoint_rows SELECT job_id, last_event_seq, last_event_type, prefix_hash, updated_at FROM sse_checkpoints;

DROP VIEW queue;
DROP TABLE sse_checkpoints;
DROP TABLE job_payloads;
DROP TABLE jobs;
ALTER TABLE job_rows RENAME TO jobs;
ALTER TABLE payload_rows RENAME TO job_payloads;
ALTER TABLE checkpoint_rows RENAME TO sse_checkpoints;

CREATE UNIQUE INDEX jobs_task_id ON jobs (task_id) WHERE task_id IS NOT NULL;
-- The oldest go first.
CREATE INDEX jobs_completed_at ON jobs (completed_at) WHERE completed_at IS NOT NULL;
-- What a restart takes up again, however many finished jobs are kept.
CREATE INDEX jobs_live ON jobs (arrival) WHERE completed_at IS NULL;
CREATE INDEX jobs_session_key ON jobs (session_key) WHERE session_key IS NOT NULL;
-- The list of a tenant: ids that it named, or that were drawn for it, stand behind its name.
CREATE INDEX jobs_of_tenants ON jobs (tenant_id, arrival) WHERE instr(task_id, ':') > 0;

UPDATE models SET jobs_count = (SELECT count(*) FROM jobs j WHERE j.model_key = models.model_key);
UPDATE receipts SET jobs_count = (SELECT count(*) FROM jobs j WHERE j.receipt_key = receipts.receipt_key);

CREATE TRIGGER jobs_come AFTER INSERT ON jobs BEGIN
  UPDATE models SET jobs_count = jobs_count + 1 WHERE model_key = NEW.model_key;
END;
CREATE TRIGGER jobs_get_receipts AFTER UPDATE OF receipt_key ON jobs
WHEN OLD.receipt_key IS NULL AND NEW.receipt_key IS NOT NULL BEGIN
  UPDATE receipts SET jobs_count = jobs_count + 1 WHERE receipt_key = NEW.receipt_key;
END;
CREATE TRIGGER jobs_go AFTER DELETE ON jobs BEGIN
  UPDATE models SET jobs_count = jobs_count - 1 WHERE model_key = OLD.model_key;
  DELETE FROM models WHERE model_key = OLD.model_key AND jobs_count = 0;
  UPDATE receipts SET jobs_count = jobs_count - 1 WHERE receipt_key = OLD.receipt_key;
  DELETE FROM receipts WHERE receipt_key = OLD.receipt_key AND jobs_count = 0;
END;

-- A job as the program and people read it. The event of a job with a receipt lacks that and the job_id.
CREATE VIEW job_records AS
SELECT j.arrival, j.job_id, coalesce(j.task_id, j.job_id) AS task_id, j.session_id, j.session_key, j.tenant_id,
       j.correlation_id,
       iif(typeof(j.request_hash) = 'blob', lower(hex(j.request_hash)), j.request_hash) AS request_hash,
       j.priority, m.model, m.model_ref, m.model_facts,
       iif(typeof(j.prompt_hash) = 'blob', lower(hex(j.prompt_hash)), j.prompt_hash) AS prompt_hash,
       j.params, j.max_tokens, j.seed, j.on_disconnect, j.timeout_ms, j.deadline_ms, j.tokens_in, j.created_at,
       j.status, j.attempts, j.worker_id, j.worker_version, j.pool_id, j.dispatched_at, j.started_at, j.completed_at,
       j.tokens_generated, j.decode_time_ms,
       j.terminal_event, r.receipt, coalesce(j.receipt_seed, j.seed) AS receipt_seed,
       iif(typeof(coalesce(j.receipt_prompt_hash, j.prompt_hash)) = 'blob',
           lower(hex(coalesce(j.receipt_prompt_hash, j.prompt_hash))),
           coalesce(j.receipt_prompt_hash, j.prompt_hash)) AS receipt_prompt_hash,
       iif(typeof(j.output_hash) = 'blob', lower(hex(j.output_hash)), j.output_hash) AS output_hash,
       j.last_event_id
FROM jobs j JOIN models m ON m.model_key = j.model_key LEFT JOIN receipts r ON r.receipt_key = j.receipt_key;

-- What waits, in the order in which it is served.
CREATE VIEW queue AS
SELECT job_id, priority = 'batch' AS priority_rank, created_at AS queued_at
FROM jobs WHERE completed_at IS NULL AND status = 'queued' ORDER BY priority_rank, arrival;

-- What the jobs had used whose rows are gone.
ALTER TABLE sessions ADD COLUMN turns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN tokens_in INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN tokens_out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN decode_time_ms INTEGER NOT NULL DEFAULT 0;

CREATE TABLE tenant_use (
  tenant_id        TEXT NOT NULL,
  day_begin_at     INTEGER NOT NULL,                   -- UTC
  tokens           INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, day_begin_at)
) STRICT, WITHOUT ROWID;
