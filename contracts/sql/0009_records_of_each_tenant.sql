-- Records give way by tenants: how many finished jobs each has, what they take, and which of them ended first.

-- What a row counts as among those of its tenant, with what its model takes where no other job has that one. Rows of an older program
-- count as what a usual one takes.
ALTER TABLE jobs ADD COLUMN record_bytes INTEGER NOT NULL DEFAULT 600;

CREATE INDEX jobs_completed_by_tenant ON jobs (tenant_id, completed_at, record_bytes) WHERE completed_at IS NOT NULL;
