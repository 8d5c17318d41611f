"""Requests that wait together are computed together, and none affects another."""

import asyncio
import threading

import pytest

from nplm_jax.apps.explorer.batching import Batcher, Busy, Superseded


class Doubling:
    """Doubles numbers once it may, and keeps what it was asked for; 13 is an error."""

    def __init__(self):
        self.may_go = threading.Event()
        self.batches = []

    def __call__(self, numbers):
        assert self.may_go.wait(60)
        self.batches.append(list(numbers))
        if 13 in numbers:
            raise ValueError('13')
        return [2 * number for number in numbers]


def ask(requests, **limits):
    """Asks for the number of each visitor while the first is computed. Returns the answers, and what was computed."""
    double = Doubling()

    async def run():
        batcher = Batcher(double, **limits)
        tasks = []
        for visitor, number in requests:
            tasks.append(asyncio.create_task(batcher(visitor, number)))
            await asyncio.sleep(0.01)  # the event loop goes on while a thread computes
        double.may_go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(run()), double.batches


def test_what_waits_is_computed_together_in_order_of_arrival():
    answers, batches = ask([('a', 1), ('b', 2), ('c', 3), ('d', 4), ('e', 5)], max_batch=3)
    assert answers == [2, 4, 6, 8, 10]
    assert batches == [[1], [2, 3, 4], [5]]


def test_a_visitor_who_asks_again_keeps_the_place_and_the_former_request_is_not_computed():
    answers, batches = ask([('a', 1), ('b', 2), ('c', 3), ('b', 4), ('a', 5)])
    assert isinstance(answers[1], Superseded) and [*answers[:1], *answers[2:]] == [2, 6, 8, 10]
    assert batches == [[1], [4, 3, 5]]


def test_beyond_the_limit_a_visitor_is_refused_at_once_and_one_who_waits_may_ask_again():
    answers, batches = ask([('a', 1), ('b', 2), ('c', 3), ('d', 4), ('c', 5)], max_waiting=2)
    assert isinstance(answers[3], Busy) and isinstance(answers[2], Superseded)
    assert [answers[0], answers[1], answers[4]] == [2, 4, 10] and batches == [[1], [2, 5]]


def test_an_error_is_that_of_its_own_request():
    answers, _ = ask([('a', 1), ('b', 2), ('c', 13), ('d', 4)])
    assert isinstance(answers[2], ValueError) and [answers[0], answers[1], answers[3]] == [2, 4, 8]


def test_a_visitor_who_leaves_does_not_stop_the_others():
    double = Doubling()

    async def run():
        batcher = Batcher(double)
        first = asyncio.create_task(batcher('a', 1))
        await asyncio.sleep(0)
        gone, stays = (asyncio.create_task(batcher(visitor, 2)) for visitor in 'bc')
        await asyncio.sleep(0)
        gone.cancel()
        again = asyncio.create_task(batcher('b', 3))
        await asyncio.sleep(0)
        double.may_go.set()
        return await first, await stays, await again, await batcher('b', 4)

    assert asyncio.run(run()) == (2, 4, 6, 8)


@pytest.mark.parametrize('results', [[], [1, 2, 3, 4]])
def test_a_wrong_number_of_results_is_an_error_of_every_request(results):
    async def run():
        batcher = Batcher(lambda _: results)
        return await asyncio.gather(*(batcher(visitor, 1) for visitor in 'ab'), return_exceptions=True)

    assert [type(answer) for answer in asyncio.run(asyncio.wait_for(run(), 60))] == [ValueError] * 2


def test_after_an_error_it_goes_on():
    double = Doubling()
    double.may_go.set()

    async def run():
        batcher = Batcher(double)
        with pytest.raises(ValueError):
            await batcher('a', 13)
        return await batcher('a', 1)

    assert asyncio.run(run()) == 2
