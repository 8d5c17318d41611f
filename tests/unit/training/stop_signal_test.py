"""Tests the signal that stops training, in a single process and in several processes at the same chunk."""

import concurrent.futures
import threading
import time

import numpy as np

from nplm_jax.distributed import multihost
from nplm_jax.training.stop_signal import StopSignal

NUM_PROCESSES = 3


def test_a_process_without_others_looks_before_every_chunk():
    signals = iter([0, 0, 15])
    stop_signal = StopSignal(lambda: next(signals))
    assert [stop_signal.number(at_once=False) for _ in range(3)] == [0, 0, 15]


def test_all_processes_stop_at_the_same_chunk_and_exchange_signals_rarely(monkeypatch):
    barrier, sent, exchanges = threading.Barrier(NUM_PROCESSES), {}, []
    process = threading.local()

    def allgather(numbers):
        sent[process.number] = numbers
        barrier.wait(30)
        gathered = np.stack([sent[i] for i in range(NUM_PROCESSES)])
        barrier.wait(30)
        exchanges.append(process.number)
        return gathered

    monkeypatch.setattr(multihost, 'is_alone', lambda: False)
    monkeypatch.setattr(multihost, 'allgather', allgather)
    started = time.perf_counter()

    def train(number):
        process.number = number
        stop_signal = StopSignal(lambda: 15 if number == 1 and time.perf_counter() > started + 1.5 else 0)
        for chunk in range(10_000):
            if stop := stop_signal.number(at_once=False):
                return chunk, stop
            time.sleep(0.004 * (1 + number))
        return None

    with concurrent.futures.ThreadPoolExecutor(NUM_PROCESSES) as pool:
        stopped = list(pool.map(train, range(NUM_PROCESSES)))
    seconds = time.perf_counter() - started
    (chunk, number), *others = stopped
    assert others == [(chunk, number)] * 2 and number == 15
    assert len(exchanges) / NUM_PROCESSES < chunk / 5
    assert seconds < 5  # 1.5 until the signal, about 1 until the next exchange


def test_the_end_of_training_is_an_exchange(monkeypatch):
    monkeypatch.setattr(multihost, 'is_alone', lambda: False)
    monkeypatch.setattr(multihost, 'allgather', lambda numbers: numbers[None])
    signals = [0]
    stop_signal = StopSignal(lambda: signals[-1])
    for _ in range(50):  # there are many chunks between two exchanges
        assert stop_signal.number(at_once=False) == 0
    signals.append(15)
    assert stop_signal.number(at_once=False) == 0 and stop_signal.number(at_once=True) == 15
