-- Jobs that were submitted together, so that the elements of an array are found by its id.

ALTER TABLE job ADD COLUMN batch_id TEXT;

CREATE INDEX job_by_batch ON job (batch_id, submitted_at, id) WHERE batch_id IS NOT NULL;
