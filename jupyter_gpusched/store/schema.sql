-- The journal of one machine, schema version 5. A new database is made from this file; an older
-- one is brought here by migrations/. Times are seconds since the Unix epoch, UTC.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('epoch', 0);

-- A job as it stands now. ``state`` is the whole of core.model.Job; the other columns repeat what is searched for.
CREATE TABLE job (
    id              TEXT PRIMARY KEY,
    owner           TEXT NOT NULL,
    phase           TEXT NOT NULL,
    name            TEXT NOT NULL,
    submitted_at    REAL NOT NULL,
    live            INTEGER NOT NULL,
    idempotency_key TEXT,
    state           TEXT NOT NULL,
    code            TEXT,
    batch_id        TEXT
);

CREATE INDEX job_by_time ON job (submitted_at, id);
CREATE INDEX job_by_owner ON job (owner, submitted_at, id);
CREATE INDEX job_by_phase ON job (phase, submitted_at, id);
CREATE INDEX job_live ON job (submitted_at, id) WHERE live = 1;
CREATE INDEX job_by_code ON job (owner, code, submitted_at) WHERE phase IN ('succeeded', 'failed') AND code IS NOT NULL;
CREATE INDEX job_by_name ON job (owner, name, submitted_at) WHERE phase IN ('succeeded', 'failed');
CREATE INDEX job_by_batch ON job (batch_id, submitted_at, id) WHERE batch_id IS NOT NULL;
CREATE UNIQUE INDEX job_key ON job (owner, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- What a job runs (core.model.Work): written once, read at each start. Apart, because it is large.
CREATE TABLE work (
    job_id TEXT PRIMARY KEY REFERENCES job (id),
    spec   TEXT NOT NULL
);

-- Everything that happened, in order. ``state`` is the job after the event; without a ``job_id`` it is an event
-- of the machine itself, and ``state`` its core.operations.Operations, NULL before anything was decided.
CREATE TABLE event (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    at     REAL NOT NULL,
    job_id TEXT,
    kind   TEXT NOT NULL,
    detail TEXT NOT NULL,
    state  TEXT
);

CREATE INDEX event_of_job ON event (job_id, seq) WHERE job_id IS NOT NULL;

-- What was used by jobs that were deleted since (core.report.Tally), by owner and by the hour in which they were
-- submitted: as many rows as hours, however many jobs there were.
CREATE TABLE gone (
    hour  INTEGER NOT NULL,
    owner TEXT NOT NULL,
    tally TEXT NOT NULL,
    PRIMARY KEY (hour, owner)
) WITHOUT ROWID;
