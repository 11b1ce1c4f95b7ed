-- Whose quota a job counts against. What a tenant has used today is the sum over the jobs that ended today, so a restart
-- refills nothing.
ALTER TABLE jobs ADD COLUMN tenant_id TEXT NOT NULL DEFAULT '';
-- Device class, engine build, numerics and sampler of the worker that last began it: run again, it goes to one like that.
ALTER TABLE jobs ADD COLUMN worker_version TEXT;
