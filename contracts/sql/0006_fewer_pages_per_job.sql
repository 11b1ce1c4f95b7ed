-- A job costs as many pages of log as it touches: what nobody asks for goes. Waiting jobs are the rows that say so, and
-- payloads are found by the number of their job.

CREATE TABLE payloads (
  arrival          INTEGER PRIMARY KEY REFERENCES jobs (arrival) ON DELETE CASCADE,
  key_slot         INTEGER NOT NULL,
  nonce            BLOB NOT NULL,
  ciphertext       BLOB NOT NULL                       -- AES-256-GCM, tag appended; associated data: job_id
) STRICT;

INSERT INTO payloads SELECT j.arrival, p.key_slot, p.nonce, p.ciphertext
FROM job_payloads p JOIN jobs j ON j.job_id = p.job_id;

DROP TABLE job_payloads;
ALTER TABLE payloads RENAME TO job_payloads;

DROP TABLE queue;
DROP INDEX jobs_status;
DROP INDEX jobs_worker_status;

-- What a restart takes up again, however many finished jobs are kept.
CREATE INDEX jobs_live ON jobs (arrival) WHERE completed_at IS NULL;

-- What waits, in the order in which it is served.
CREATE VIEW queue AS
SELECT job_id, priority = 'batch' AS priority_rank, created_at AS queued_at
FROM jobs WHERE completed_at IS NULL AND status = 'queued' ORDER BY priority_rank, arrival;
