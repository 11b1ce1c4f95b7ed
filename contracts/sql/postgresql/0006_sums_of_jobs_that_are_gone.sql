-- What the jobs had used whose rows are gone: they may go while their sums are still needed.
ALTER TABLE sessions ADD COLUMN turns BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN tokens_in BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN tokens_out BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN decode_time_ms BIGINT NOT NULL DEFAULT 0;

CREATE TABLE tenant_use (
  tenant_id        TEXT NOT NULL,
  day_begin_at     BIGINT NOT NULL,                    -- UTC
  tokens           BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, day_begin_at)
);
