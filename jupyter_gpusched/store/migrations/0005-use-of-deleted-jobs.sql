-- What was used by jobs that their owners have deleted since, so that reports of use stay true.

CREATE TABLE gone (
    hour  INTEGER NOT NULL,
    owner TEXT NOT NULL,
    tally TEXT NOT NULL,
    PRIMARY KEY (hour, owner)
) WITHOUT ROWID;
