-- A drain is an operator's word: it holds over restarts until it is taken back.
ALTER TABLE pools ADD COLUMN draining INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1));
