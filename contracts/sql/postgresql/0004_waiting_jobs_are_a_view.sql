-- Waiting jobs are the rows that say so; nobody asks for jobs by state or worker.
DROP TABLE queue;
DROP INDEX jobs_status;
DROP INDEX jobs_worker_status;

-- What a restart takes up again, however many finished jobs are kept.
CREATE INDEX jobs_live ON jobs (arrival) WHERE completed_at IS NULL;

-- What waits, in the order in which it is served.
CREATE VIEW queue AS
SELECT job_id, CASE priority WHEN 'batch' THEN 1 ELSE 0 END AS priority_rank, created_at AS queued_at
FROM jobs WHERE completed_at IS NULL AND status = 'queued' ORDER BY priority_rank, arrival;
