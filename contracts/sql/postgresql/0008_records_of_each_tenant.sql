-- Records give way by tenants: how many finished jobs each has, what they take, and which of them ended first.

-- What a row counts as. Of its texts as they are read: how small the server makes them is known only once they are stored.
ALTER TABLE jobs ADD COLUMN record_bytes BIGINT NOT NULL GENERATED ALWAYS AS (
  coalesce(octet_length(session_id), 0) + coalesce(octet_length(worker_id), 0) + coalesce(octet_length(pool_id), 0) +
  coalesce(octet_length(error_code), 0) + coalesce(octet_length(last_error), 0) +
  coalesce(octet_length(terminal_event), 0) + coalesce(octet_length(last_event_id), 0) +
  coalesce(octet_length(worker_version), 0) + octet_length(job_id) + octet_length(task_id) +
  octet_length(correlation_id) + octet_length(request_hash) + octet_length(model) + octet_length(model_ref) +
  octet_length(model_facts) + octet_length(prompt_hash) + octet_length(params) + octet_length(tenant_id) + 200
) STORED;

CREATE INDEX jobs_completed_by_tenant ON jobs (tenant_id, completed_at, arrival) INCLUDE (record_bytes)
WHERE completed_at IS NOT NULL;
