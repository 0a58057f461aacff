-- The journal of one machine, schema version 1. A new database is made from this file; an older
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
    state           TEXT NOT NULL
);

CREATE INDEX job_by_time ON job (submitted_at, id);
CREATE INDEX job_by_owner ON job (owner, submitted_at, id);
CREATE INDEX job_by_phase ON job (phase, submitted_at, id);
CREATE INDEX job_live ON job (submitted_at, id) WHERE live = 1;
CREATE UNIQUE INDEX job_key ON job (owner, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- What a job runs (core.model.Work): written once, read at each start. Apart, because it is large.
CREATE TABLE work (
    job_id TEXT PRIMARY KEY REFERENCES job (id),
    spec   TEXT NOT NULL
);

-- Everything that happened, in order. ``state`` is the job after the event.
CREATE TABLE event (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    at     REAL NOT NULL,
    job_id TEXT NOT NULL,
    kind   TEXT NOT NULL,
    detail TEXT NOT NULL,
    state  TEXT NOT NULL
);
