"""Who a token stands for, and who is turned away with which words; the Hub is a function here."""

from __future__ import annotations

import os
import pwd
import socket
from types import SimpleNamespace

import anyio
import pytest
from tornado.httputil import HTTPHeaders
from tornado.web import HTTPError
from waiting import DEADLINE_S

from jupyter_gpusched.callers import overflow_uid
from jupyter_gpusched.core.model import NotAllowed, Unauthorized, Unavailable
from jupyter_gpusched.hosts import hub_identity, hub_strangers
from jupyter_gpusched.hosts.hub import ADMIN_SCOPE, access_scope
from jupyter_gpusched.hosts.hub_identity import BELIEVED_S, ByHubToken
from jupyter_gpusched.hosts.hub_strangers import FOR_EACH, MOST_WAITING, REFUSED_S, place_of

SCOPE = access_scope("gpusched")

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class FakeHub:
    """Tokens and what the Hub says of them, and how often it was asked."""

    def __init__(self, **tokens):
        self.tokens = tokens
        self.asked = []
        self.down = None

    async def __call__(self, token):
        self.asked.append(token)
        if self.down is not None:
            raise self.down
        return self.tokens.get(token)


def user(name, *scopes, **more):
    return {"kind": "user", "name": name, "admin": False, "groups": [], "scopes": list(scopes or (SCOPE,))} | more


def holds(scope, model):
    return scope in model["scopes"]


def doorkeeper(hub, **more):
    return ByHubToken(hub, holds, **more)


def request(authorization=None, *, peer="192.0.2.1", noted=None):
    headers = HTTPHeaders({} if authorization is None else {"Authorization": authorization})
    if noted is not None:
        headers["X-Forwarded-For"] = noted
    ends = {"getpeername": lambda: (peer, 50000), "getsockname": lambda: ("192.0.2.99", 876)}
    stream = SimpleNamespace(socket=SimpleNamespace(family=socket.AF_INET, **ends))
    return SimpleNamespace(headers=headers, connection=SimpleNamespace(stream=stream))


@pytest.fixture
def account(monkeypatch):
    """Adds an account to the user database as this process sees it, and says as whom it runs."""
    real, known = pwd.getpwnam, {}

    def add(name, uid, found_as=None):
        known[found_as or name] = pwd.struct_passwd((name, "x", uid, uid, "", f"/home/{uid}", "/bin/sh"))

    monkeypatch.setattr(pwd, "getpwnam", lambda name: known.get(name) or real(name))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid])
    return add


@pytest.mark.parametrize("authorization", [None, "", "token", "token ", "Basic dXNlcjpw", "token a b", "tok\u00e9n x"])
async def test_without_a_token_nobody_is_let_in_and_the_hub_is_not_asked(authorization):
    hub = FakeHub()
    with pytest.raises(Unauthorized, match=r"says not whose it is"):
        await doorkeeper(hub).caller(request(authorization))
    assert hub.asked == []


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (None, "does not know this token"),
        (user("ann", "access:servers"), "lacks the scope"),
        (user("nobody-of-this-name"), "no user"),
    ],
)
async def test_a_token_that_was_refused_is_refused_for_a_moment_without_asking_the_hub_again(account, model, words):
    hub, now = FakeHub(bad=model), [1000.0]
    door = doorkeeper(hub, clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises((Unauthorized, NotAllowed), match=words) as refusal:
            await door.caller(request("token bad"))
        assert refusal.value.hint
    assert hub.asked == ["bad"]
    account("ann", 1234)
    hub.tokens["bad"] = user("ann")
    now[0] += REFUSED_S
    assert (await door.caller(request("token bad"))).user == "ann"


@pytest.mark.parametrize("word", ["token", "Bearer", "TOKEN"])
async def test_the_user_of_a_token_with_the_scope_is_the_unix_user_of_that_name(account, word):
    account("ann", 1234)
    caller = await doorkeeper(FakeHub(t=user("ann", groups=["course", 7]))).caller(request(f"{word} t"))
    assert (caller.user, caller.uid, caller.home, caller.admin) == ("ann", 1234, "/home/1234", False)
    assert "course" in caller.groups


async def test_a_token_without_the_scope_is_told_which_one_and_where_it_is_set(account):
    account("ann", 1234)
    with pytest.raises(NotAllowed, match=r"lacks the scope access:services!service=gpusched") as refusal:
        await doorkeeper(FakeHub(t=user("ann", "access:servers!server=ann/"))).caller(request("token t"))
    assert "c.Spawner.server_token_scopes" in refusal.value.hint


@pytest.mark.parametrize(
    ("model", "admin"),
    [
        (user("ann"), False),
        (user("ann", admin=True), True),
        (user("ann", SCOPE, ADMIN_SCOPE), True),
        (user("ann", SCOPE, "custom:gpusched:administrator"), False),
    ],
)
async def test_administrators_are_those_of_the_hub_and_holders_of_the_scope(account, model, admin):
    account("ann", 1234)
    assert (await doorkeeper(FakeHub(t=model)).caller(request("token t"))).admin is admin


@pytest.mark.parametrize(
    "model", [user("ann", kind="service"), user(None), user(7), {"kind": "user", "scopes": [SCOPE]}]
)
async def test_a_token_of_no_user_has_no_jobs(account, model):
    account("ann", 1234)
    with pytest.raises(NotAllowed, match=r"Only users have jobs"):
        await doorkeeper(FakeHub(t=model)).caller(request("token t"))


@pytest.mark.parametrize("name", ["nobody-of-this-name", "a/b", "../root", "x\0y", "", "%", "' OR 1=1 --", "é" * 128])
async def test_a_user_without_an_account_is_told_so(monkeypatch, name):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(NotAllowed, match=r"Jobs run as their owner, but this machine has no user"):
        await doorkeeper(FakeHub(t=user(name))).caller(request("token t"))


async def test_a_user_database_that_ignores_case_makes_nobody_somebody_else(account):
    account("ann", 1234, found_as="Ann")
    with pytest.raises(NotAllowed, match=r"no user 'Ann', but 'ann'"):
        await doorkeeper(FakeHub(t=user("Ann"))).caller(request("token t"))


async def test_cards_are_kept_for_those_only_whose_jobs_could_run(account):
    account("ann", 1234)
    door = doorkeeper(FakeHub())
    assert await door.knows("ann")
    assert not await door.knows("nobody-of-this-name")


async def test_who_stands_for_everybody_without_a_number_gets_no_jobs(account):
    account("nobody", overflow_uid())
    door = doorkeeper(FakeHub(t=user("nobody")))
    with pytest.raises(NotAllowed, match=r"everybody who has no number here"):
        await door.caller(request("token t"))
    assert not await door.knows("nobody")


@pytest.mark.parametrize(("name", "uid"), [("root", 0), ("toor", 0), ("postgres", 114)])
async def test_a_hub_user_named_like_an_account_of_the_system_gets_no_jobs(account, name, uid):
    account(name, uid)
    with pytest.raises(NotAllowed, match=r"an account of the system"):
        await doorkeeper(FakeHub(t=user(name))).caller(request("token t"))


async def test_without_root_a_service_works_for_its_own_user_alone_and_says_so(account, monkeypatch):
    account("ann", 1234)
    account("bob", 1235)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    door = doorkeeper(FakeHub(a=user("ann"), b=user("bob")))
    assert (await door.caller(request("token a"))).user == "ann"
    with pytest.raises(NotAllowed, match=r"without root, as uid 1234"):
        await door.caller(request("token b"))


@pytest.mark.parametrize("trouble", [ConnectionRefusedError(), TimeoutError(), HTTPError(500), HTTPError(502)])
async def test_a_hub_that_does_not_answer_lets_nobody_in(account, trouble):
    account("ann", 1234)
    hub = FakeHub(t=user("ann"))
    hub.down = trouble
    with pytest.raises(Unavailable, match=r"The Hub does not answer"):
        await doorkeeper(hub).caller(request("token t"))
    hub.down = None
    assert (await doorkeeper(hub).caller(request("token t"))).user == "ann"


async def test_what_the_hub_said_is_believed_for_a_minute_and_no_longer(account):
    account("ann", 1234)
    hub, now = FakeHub(t=user("ann")), [1000.0]
    door = doorkeeper(hub, clock=lambda: now[0])
    for _ in range(3):
        await door.caller(request("token t"))
    assert len(hub.asked) == 1
    now[0] += BELIEVED_S - 1
    hub.tokens.clear()
    await door.caller(request("token t"))
    now[0] += 1
    with pytest.raises(Unauthorized):
        await door.caller(request("token t"))


async def test_a_flood_of_tokens_fills_no_memory(account, monkeypatch):
    account("ann", 1234)
    monkeypatch.setattr(hub_identity, "_MOST_KNOWN", 10)
    door = doorkeeper(FakeHub(**{f"t{number}": user("ann") for number in range(50)}))
    for number in range(50):
        await door.caller(request(f"token t{number}"))
    assert len(door._known) <= 10


async def test_a_flood_of_tokens_that_are_none_fills_no_memory_either(monkeypatch):
    monkeypatch.setattr(hub_strangers, "_MOST_REFUSED", 10)
    hub = FakeHub()
    door = doorkeeper(hub)
    for number in range(50):
        with pytest.raises(Unauthorized):
            await door.caller(request(f"token t{number}"))
    assert len(door._strangers._refused) == 10


class SlowHub(FakeHub):
    """Answers when it is told to; ``busy`` has the tokens that it is being asked about."""

    def __init__(self, **tokens):
        super().__init__(**tokens)
        self.busy, self.most, self.answers = [], 0, anyio.Event()

    async def __call__(self, token):
        self.busy.append(token)
        self.most = max(self.most, len(self.busy))
        await self.answers.wait()
        self.busy.remove(token)
        return await super().__call__(token)


async def until(condition):
    with anyio.fail_after(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  it changes in tasks and threads that know nothing of us
            await anyio.sleep(0.01)


async def flood(door, tasks, count, **where):
    """So many different bad tokens from one place at once; what each was told is in the list that is returned."""
    told = []

    async def come(number):
        with pytest.raises((Unauthorized, Unavailable)) as refusal:
            await door.caller(request(f"token flood{number}-{where}", **where))
        told.append(type(refusal.value))

    for number in range(count):
        tasks.start_soon(come, number)
    await anyio.wait_all_tasks_blocked()
    return told


async def test_of_strangers_few_are_asked_about_at_a_time_and_others_get_their_turn(account):
    account("ann", 1234)
    hub = SlowHub(good=user("ann"))
    door, came = doorkeeper(hub), []

    async def come():
        came.append(await door.caller(request("token good", peer="192.0.2.2")))

    async with anyio.create_task_group() as tasks:
        told = await flood(door, tasks, 100)
        await until(lambda: len(hub.busy) == FOR_EACH and len(told) == 100 - MOST_WAITING)
        tasks.start_soon(come)
        await until(lambda: "good" in hub.busy)
        hub.answers.set()
    assert came[0].user == "ann"
    assert hub.most <= FOR_EACH + 1
    assert told.count(Unavailable) == 100 - MOST_WAITING, "who waits behind too many of the own place is told"
    assert told.count(Unauthorized) == MOST_WAITING


async def test_a_token_that_was_good_a_minute_ago_waits_for_no_stranger_and_is_asked_about_once(account):
    account("ann", 1234)
    hub, now = SlowHub(good=user("ann")), [1000.0]
    hub.answers.set()
    door = doorkeeper(hub, clock=lambda: now[0])
    await door.caller(request("token good"))
    now[0] += BELIEVED_S
    hub.answers = anyio.Event()
    async with anyio.create_task_group() as tasks:
        await flood(door, tasks, MOST_WAITING + 1)
        for _ in range(5):
            tasks.start_soon(door.caller, request("token good"))
        await until(lambda: "good" in hub.busy)
        hub.answers.set()
    assert hub.asked.count("good") == 2


def test_by_way_of_a_proxy_of_this_machine_the_address_counts_that_it_noted_last(monkeypatch):
    local = {"peer": "127.0.0.1"}
    assert place_of(request(**local)) == "127.0.0.1"
    assert place_of(request(noted="10.9.9.9, 198.51.100.7", **local)) == "198.51.100.7"
    assert place_of(request(noted="198.51.100.7")) == "192.0.2.1", "what others say of themselves does not count"
    monkeypatch.setattr(hub_strangers, "uid_beside", lambda _: 1234)
    assert place_of(request(noted="198.51.100.7", **local)) == "uid 1234"
