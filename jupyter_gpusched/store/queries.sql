-- Every statement of the store. A line "-- name: what it does" begins a query, which ends with the next one.

-- epoch: the host epoch; a writer whose own differs has been fenced off
SELECT value FROM meta WHERE key = 'epoch';

-- set_meta: remember one value about the database itself
INSERT INTO meta (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- last_seq: the sequence number of the latest event; no row in a new database
SELECT seq FROM sqlite_sequence WHERE name = 'event';

-- insert_job: a new job; fails when its id or idempotency key is taken
INSERT INTO job (id, owner, phase, name, submitted_at, live, idempotency_key, state, code, batch_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- update_job: a known job after an event
INSERT INTO job (id, owner, phase, name, submitted_at, live, idempotency_key, state, code, batch_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    phase = excluded.phase, name = excluded.name, live = excluded.live, state = excluded.state;

-- insert_work: what a new job runs
INSERT INTO work (job_id, spec) VALUES (?, ?);

-- forget_job: a job's record, at its owner's wish; parameters of the three: id
DELETE FROM job WHERE id = ?;

-- forget_work: what it ran
DELETE FROM work WHERE job_id = ?;

-- forget_events: all that happened to it
DELETE FROM event WHERE job_id = ?;

-- tally_of_gone: what one owner's deleted jobs of one hour had used; parameters: hour, owner
SELECT tally FROM gone WHERE hour = ? AND owner = ?;

-- set_tally_of_gone: the same with one more
INSERT INTO gone (hour, owner, tally) VALUES (?, ?, ?)
ON CONFLICT (hour, owner) DO UPDATE SET tally = excluded.tally;

-- gone_since: what deleted jobs had used that were submitted in an hour or later
SELECT owner, tally FROM gone WHERE hour >= ? ORDER BY hour, owner;

-- usage_of_gone: what deleted jobs had used of late, by owner; no row before the first
SELECT value FROM meta WHERE key = 'usage_of_gone';

-- operations: what was decided about the machine itself; no row before the first decision
SELECT value FROM meta WHERE key = 'operations';

-- pruned_to: the latest event that was pruned; no row before the first
SELECT value FROM meta WHERE key = 'pruned_to';

-- first_event_since: the oldest event of a time or later; they are in order, so the search ends at once
SELECT seq FROM event WHERE at >= ? ORDER BY seq LIMIT 1;

-- oldest_events: up to a sequence number, of jobs that have ended and of the machine; parameters: seq, limit
SELECT seq FROM event
WHERE seq <= ? AND NOT EXISTS (SELECT 1 FROM job WHERE job.id = event.job_id AND job.live = 1)
ORDER BY seq LIMIT ?;

-- delete_event: one event
DELETE FROM event WHERE seq = ?;

-- append_event: one event and the job it led to
INSERT INTO event (seq, at, job_id, kind, detail, state) VALUES (?, ?, ?, ?, ?, ?);

-- live_jobs: what the scheduler still has to do with, oldest first
SELECT state FROM job WHERE live = 1 ORDER BY submitted_at, id;

-- ended_jobs: the most recent of those with which the scheduler has nothing to do any more
SELECT state FROM job WHERE live = 0 ORDER BY submitted_at DESC, id DESC LIMIT ?;

-- oldest_ended: the other way round, after one of them; parameters: submitted_at, id, limit
SELECT state FROM job WHERE (submitted_at, id) > (?, ?) AND live = 0 ORDER BY submitted_at, id LIMIT ?;

-- count_ended: how many there are
SELECT (SELECT count(*) FROM job) - (SELECT count(*) FROM job WHERE live = 1);

-- job: one job by id
SELECT state FROM job WHERE id = ?;

-- work: what one job runs
SELECT spec FROM work WHERE job_id = ?;

-- job_with_key: the job that an owner submitted with an idempotency key
SELECT id FROM job WHERE owner = ? AND idempotency_key = ?;

-- page_of_jobs: newest first; the store puts its conditions in
SELECT state FROM job WHERE {conditions} ORDER BY submitted_at DESC, id DESC LIMIT :limit;

-- phases_of_batch: how many jobs of a batch are in which phase
SELECT phase, count(*) FROM job WHERE batch_id = ? GROUP BY phase;

-- runs_of_code: what ran the same, newest first; runs that ended by themselves
SELECT state FROM job
WHERE phase IN ('succeeded', 'failed') AND code IS NOT NULL AND owner = ? AND code = ?
ORDER BY submitted_at DESC LIMIT ?;

-- runs_of_name: what had the same name, newest first; runs that ended by themselves
SELECT state FROM job WHERE phase IN ('succeeded', 'failed') AND owner = ? AND name = ? ORDER BY submitted_at DESC LIMIT ?;

-- events_of_job: what happened to one job after a sequence number
SELECT seq, at, kind, detail, state FROM event WHERE job_id = ? AND seq > ? ORDER BY seq LIMIT ?;

-- events_after: the journal after a sequence number
SELECT seq, at, job_id, kind, detail, state FROM event WHERE seq > ? ORDER BY seq LIMIT ?;
