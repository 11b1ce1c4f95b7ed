-- What a tenant names is its own: the ids of its tasks and sessions are kept behind its name, so that those of two tenants are
-- never one. Names without a colon are the operator's.
UPDATE jobs SET task_id = tenant_id || ':' || task_id, session_id = tenant_id || ':' || session_id
WHERE tenant_id NOT IN ('', 'localhost', 'anonymous') AND tenant_id NOT LIKE 'token:%';

UPDATE sessions SET session_id =
  (SELECT j.session_id FROM jobs j WHERE j.session_key = sessions.session_key ORDER BY j.arrival LIMIT 1)
WHERE session_key IN (SELECT session_key FROM jobs WHERE session_key IS NOT NULL AND instr(session_id, ':') > 0);

-- Its list.
CREATE INDEX jobs_of_tenants ON jobs (tenant_id, arrival) WHERE instr(task_id, ':') > 0;
