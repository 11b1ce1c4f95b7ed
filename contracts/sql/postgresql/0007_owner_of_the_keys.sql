-- Whose keys open the payloads: a random id that the owner's state directory keeps beside payload.keys, and where that is, for people.
-- NULL: no start has said so yet.
ALTER TABLE store_owner ADD COLUMN store_id TEXT;
ALTER TABLE store_owner ADD COLUMN host TEXT;
ALTER TABLE store_owner ADD COLUMN directory TEXT;
