-- What an operator asked of a pool beside a drain, as JSON; NULL: nothing. A reload is here until the next order, running or
-- ended, and a restart goes on with one that runs; so are the workers that a purge sends away.
ALTER TABLE pools ADD COLUMN orders TEXT;
