-- Earlier runs of the same work, by what it runs or by its name, for `vram="auto"`.

ALTER TABLE job ADD COLUMN code TEXT;

CREATE INDEX job_by_code ON job (owner, code, submitted_at) WHERE phase IN ('succeeded', 'failed') AND code IS NOT NULL;
CREATE INDEX job_by_name ON job (owner, name, submitted_at) WHERE phase IN ('succeeded', 'failed');
