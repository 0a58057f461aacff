"""Reservations as one asks for them: over REST and in the terminal, seen on the cards, gone by themselves."""

from __future__ import annotations

import json
import os
import pwd
import time

import pytest
from rest import Rest
from waiting import wait_for

from jupyter_gpusched import cli


@pytest.fixture
def rest(host):
    rest = Rest(host.client().health()["socket"])
    yield rest
    rest.close()


@pytest.fixture
def book(rest):
    def book(**more):
        return rest("POST", "reservations", {"gpus": 1, "zone": "UTC", "for": "1h", **more})

    return book


def test_a_reservation_is_answered_listed_and_shown_on_its_card(rest, book):
    made = book(gpus=[1], cause="demo")
    assert made.status == 201
    assert (made.json["user"], made.json["cause"], made.json["active"]) == (None, "demo", True)
    assert [gpu["index"] for gpu in made.json["gpus"]] == [1]
    assert made.json["end"] - made.json["start"] == 3600.0
    assert [one["id"] for one in rest("GET", "reservations").json["items"]] == [made.json["id"]]
    on_cards = [[one["id"] for one in gpu["reservations"]] for gpu in rest("GET", "gpus").json["items"]]
    assert on_cards == [[], [made.json["id"]]]


def test_a_job_of_another_waits_for_its_end_and_says_so(rest, book, client, command):
    made = book(gpus=2, cause="demo").json
    job = client.submit(command("true", vram="1G"))
    said = rest("GET", f"jobs/{job}").json["waiting"]
    assert "GPUs 0, 1 are kept by a reservation for work outside the queue (demo) that ends in " in said
    assert rest("DELETE", f"reservations/{made['id']}").status == 204
    assert client.wait(job)["phase"] == "succeeded"
    assert rest("GET", "reservations").json["items"] == []


def test_it_ends_by_itself(rest, book, client, command):
    book(gpus=2, **{"for": "2s"})
    job = client.submit(command("true", vram="1G"))
    assert rest("GET", f"jobs/{job}").json["phase"] == "queued"
    assert client.wait(job)["phase"] == "succeeded"


def test_a_running_job_of_another_goes_on_and_is_counted(rest, book, client, command):
    job = client.submit(command("sleep", "60", vram="1G"))
    wait_for(lambda: client.job(job)["phase"] == "running", "it does not run")
    index = client.job(job)["gpus"][0]["index"]
    assert book(gpus=[index]).json["reaching_in"] == 1
    assert client.job(job)["phase"] == "running"


def test_it_outlives_the_host(start_host):
    host = start_host("2x24564M")
    made = host.client().reserve({"gpus": 1, "zone": "UTC", "for": "1h"})
    host.terminate()
    again = start_host("2x24564M").client()
    assert [one["id"] for one in again.reservations()] == [made["id"]]


def test_what_is_booked_is_not_booked_again(rest, book):
    first = book(gpus=2).json["id"]
    second = book(gpus=1)
    assert second.status == 409
    assert second.error["code"] == "reservation_clash"
    assert first in second.error["message"]
    later = time.strftime("%Y-%m-%d %H:%M", time.gmtime(time.time() + 86400))
    assert book(gpus=1, **{"from": later}).status == 201


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        ({"gpus": 3}, "gpus", "3 of 2 GPUs cannot be reserved"),
        ({"gpus": 0}, "gpus", "0 of 2 GPUs"),
        ({"gpus": [0, 0]}, "gpus", "each once"),
        ({"gpus": ["GPU-none"]}, "gpus", "there is no GPU 'GPU-none'"),
        ({"zone": "Mars/Olympus"}, "zone", "no time zone 'Mars/Olympus'"),
        ({"to": "17:00"}, "to", "either `to` or `for`"),
        ({"for": None}, "to", "either `to` or `for`"),
        ({"for": "4"}, "for", "not a span of time"),
        ({"for": "60d"}, "to", "at most 31d"),
        ({"from": "2026-03-29 02:30", "zone": "Europe/Berlin"}, "from", "2026-03-29T01:30+01:00"),
        ({"from": "2026-10-25 02:30", "zone": "Europe/Berlin"}, "from", "2026-10-25T02:30+02:00"),
        ({"from": "2020-01-01 10:00"}, "from", "in the past, and with 1h from then it is over since 2020-01-01 11:00"),
        ({"from": "2020-01-01 10:00", "for": None, "to": "09:00"}, "to", "before it begins"),
        ({"user": "nosuchuser"}, "user", "'nosuchuser' is no user of this host"),
        ({"interactive": True, "user": "root"}, "user", "exclude each other"),
        ({"cards": 1}, None, "unknown field"),
    ],
)
def test_what_cannot_be_reserved_is_refused_with_the_way_out(book, asked, field, words):
    refused = book(**asked)
    assert refused.status == 422
    assert refused.error["field"] == field
    assert words in refused.error["message"] + (refused.error["hint"] or "")


def test_whoever_gave_the_day_is_not_asked_for_it(book):
    assert book(**{"from": "2020-01-01 10:00"}).error["hint"] == "Give a later time."
    assert "the day" in book(**{"for": None, "to": "00:00"}).error["hint"]


def test_the_owner_of_the_host_may_be_named(book):
    own = pwd.getpwuid(os.geteuid()).pw_name
    assert book(user=own).json["user"] == own


def test_to_end_what_is_not_there_is_refused(rest):
    refused = rest("DELETE", "reservations/aaaaaaaa")
    assert (refused.status, refused.error["code"]) == (404, "unknown_reservation")


def test_on_a_machine_for_one_user_a_reservation_is_for_work_outside_the_queue(rest):
    assert rest("POST", "reservations", {"gpus": 1, "zone": "UTC", "for": "1h"}).json["user"] is None


def test_the_terminal_reserves_lists_and_ends(host, client, capsys, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert cli.main(["reserve", "2", "--for", "1h", "--cause", "demo"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("GPUs 0, 1: reserved for work outside the queue until ")
    assert told[0].endswith(" (demo)")
    (made,) = client.reservations()
    assert (told[-1], made["zone"]) == (made["id"], "Europe/Berlin")
    assert cli.main(["reservations"]) == 0
    assert "demo" in capsys.readouterr().out
    assert cli.main(["reservations", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == client.reservations()
    assert cli.main(["unreserve", made["id"]]) == 0
    assert client.reservations() == []
    assert cli.main(["unreserve", made["id"]]) == cli.REFUSED
    assert cli.main(["reserve", "1", "--gpu", "0", "--for", "1h"]) == cli.REFUSED
    capsys.readouterr()
    assert cli.main(["reserve", "1"]) == cli.REFUSED
    refused = capsys.readouterr().err
    assert "either --to or --for" in refused
    assert '"to"' not in refused
    monkeypatch.setenv("TZ", "CET-1CEST")
    assert cli.main(["reserve", "1", "--for", "1h"]) == cli.REFUSED
    assert "--zone Europe/Berlin" in capsys.readouterr().err
