-- Events that belong to no job, and a quick way to those of one. The numbers given out so far stay given out.

CREATE TABLE event_2 (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    at     REAL NOT NULL,
    job_id TEXT,
    kind   TEXT NOT NULL,
    detail TEXT NOT NULL,
    state  TEXT
);

INSERT INTO event_2 (seq, at, job_id, kind, detail, state)
SELECT seq, at, job_id, kind, detail, state FROM event ORDER BY seq;

DELETE FROM sqlite_sequence WHERE name = 'event_2';

INSERT INTO sqlite_sequence (name, seq) SELECT 'event_2', seq FROM sqlite_sequence WHERE name = 'event';

DROP TABLE event;

ALTER TABLE event_2 RENAME TO event;

CREATE INDEX event_of_job ON event (job_id, seq) WHERE job_id IS NOT NULL;
