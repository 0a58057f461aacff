"""Where jobs stand in the queue, and where one would stand that has come since."""

from jupyter_gpusched.core.explain import positions
from jupyter_gpusched.core.messages import HoldRequested
from jupyter_gpusched.core.model import Priority
from jupyter_gpusched.core.standing import Standing

from .conftest import G, World, card, job


def deep(count=30):
    world = World(card(health="lost"))
    priorities = [Priority.NORMAL, Priority.LOW, Priority.HIGH]
    for number in range(count):
        world.now = float(number)
        world.submit(job(f"j{number:02}", vram=(1 + number % 4) * G, priority=priorities[number % 3]))
    return world


def test_a_newcomer_is_found_the_place_that_it_has_once_all_are_put_in_order_anew():
    world = deep()
    standing, now = Standing(world.state, world.now), world.now
    for name, priority in (("late", Priority.NORMAL), ("soon", Priority.HIGH), ("last", Priority.LOW)):
        world.submit(job(name, vram=2 * G, priority=priority))
        fresh = Standing(world.state, now)
        newcomer = world.state.jobs[name]
        assert standing.position(newcomer) <= fresh.position(newcomer) <= standing.position(newcomer) + 2
    alone = Standing(deep().state, now)
    assert alone.position(world.state.jobs["soon"]) == Standing(world.state, now).position(world.state.jobs["soon"])


def test_the_words_count_who_is_before_it():
    world = deep(3)
    standing = Standing(world.state, world.now)
    assert standing.positions() == positions(world.state, world.now) == {"j02": 1, "j00": 2, "j01": 3}
    assert (
        standing.words(world.state.jobs["j01"]) == "number 3 of 3 in the queue; before it 1 urgent, 2 of the same owner"
    )
    assert standing.words(world.state.jobs["j02"]) == "number 1 of 3 in the queue"


def test_one_that_was_set_aside_meanwhile_stands_behind_all():
    world = deep(3)
    standing = Standing(world.state, world.now)
    world.tell(HoldRequested("j02", "ann"))
    assert standing.position(world.state.jobs["j02"]) == 4
    assert Standing(world.state, world.now).position(world.state.jobs["j02"]) == 3
