"""Older files are brought up with a copy kept; newer ones are refused."""

import sqlite3
import stat
from contextlib import closing

import pytest

from jupyter_gpusched.store import SqliteStore, StoreUnavailable
from jupyter_gpusched.store.opening import VERSION, Schema, migrations_on_disk, open_database

NEXT = VERSION + 1
ADDS_A_NOTE = Schema(
    version=NEXT,
    migrations={
        **migrations_on_disk(),
        NEXT: "ALTER TABLE job ADD COLUMN note TEXT;\nUPDATE job SET note = 'old; job';\n",
    },
)
BREAKS_HALFWAY = Schema(
    version=NEXT, migrations={NEXT: "ALTER TABLE job ADD COLUMN note TEXT;\nINSERT INTO missing VALUES (1);\n"}
)


@pytest.fixture
def old_file(path, store, epoch, submit, make_job):
    submit(store, epoch, make_job())
    store.close()
    return path


def columns(path):
    with closing(sqlite3.connect(path)) as connection:
        return {row[1] for row in connection.execute("PRAGMA table_info(job)")}


def version(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def test_a_new_file_has_the_current_version(old_file):
    assert version(old_file) == VERSION


def test_every_version_has_its_migration():
    assert sorted(migrations_on_disk()) == list(range(2, VERSION + 1))


def test_an_older_file_is_migrated_with_its_jobs(old_file):
    store = SqliteStore(old_file, schema=ADDS_A_NOTE)
    try:
        assert [job.id for job in store.live()] == ["aaaaaaaa"]
    finally:
        store.close()
    assert version(old_file) == NEXT
    assert "note" in columns(old_file)


def test_the_old_file_is_kept_beside_it_for_its_owner_only(old_file):
    SqliteStore(old_file, schema=ADDS_A_NOTE).close()
    copy = old_file.with_name(f"{old_file.name}.v{VERSION}.bak")
    assert version(copy) == VERSION
    assert "note" not in columns(copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_a_kept_copy_is_never_overwritten(old_file):
    earlier = old_file.with_name(f"{old_file.name}.v{VERSION}.bak")
    earlier.write_text("precious")
    SqliteStore(old_file, schema=ADDS_A_NOTE).close()
    assert earlier.read_text() == "precious"
    assert version(earlier.with_name(earlier.name + "-2")) == VERSION


def test_a_migration_that_fails_changes_nothing(old_file):
    with pytest.raises(StoreUnavailable, match=r"missing"):
        SqliteStore(old_file, schema=BREAKS_HALFWAY)
    assert version(old_file) == VERSION
    assert "note" not in columns(old_file)
    SqliteStore(old_file).close()


def test_no_temporary_copy_is_left(old_file):
    SqliteStore(old_file, schema=ADDS_A_NOTE).close()
    assert sorted(file.name for file in old_file.parent.iterdir()) == [old_file.name, f"{old_file.name}.v{VERSION}.bak"]


def test_a_newer_file_is_refused_with_what_to_do_and_left_alone(old_file):
    SqliteStore(old_file, schema=ADDS_A_NOTE).close()
    before = old_file.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"newer jupyter-gpusched") as refusal:
        SqliteStore(old_file)
    assert "Upgrade" in refusal.value.hint
    assert old_file.read_bytes() == before


def test_opening_twice_makes_the_tables_once(path):
    first = open_database(path, timeout_s=1, schema=Schema())
    second = open_database(path, timeout_s=1, schema=Schema())
    first.close()
    second.close()
    assert version(path) == VERSION
