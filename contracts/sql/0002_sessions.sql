-- Sessions: numbers that bound a client's jobs. What a session has used is the sum over its jobs, so it is as durable as
-- they are and a restart refills nothing. session_key tells two sessions of one id apart that followed one another.

CREATE TABLE sessions (
  session_key             INTEGER PRIMARY KEY,
  session_id              TEXT NOT NULL,
  created_at              INTEGER NOT NULL,
  touched_at              INTEGER NOT NULL,            -- last use that left no job
  token_budget            INTEGER,                     -- NULL: no limit
  time_budget_ms          INTEGER,
  cost_budget_nano        INTEGER,
  prompt_token_cost_nano  INTEGER NOT NULL,            -- prices are those of its first day
  output_token_cost_nano  INTEGER NOT NULL
) STRICT;

ALTER TABLE jobs ADD COLUMN session_key INTEGER;
ALTER TABLE jobs ADD COLUMN decode_time_ms INTEGER NOT NULL DEFAULT 0;

CREATE INDEX jobs_session_key ON jobs (session_key) WHERE session_key IS NOT NULL;
