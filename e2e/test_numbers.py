"""Numbers compared with independent references: df, and sums over programs."""

from __future__ import annotations

import math
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from harness import QUICK, Agent, eventually, machine, replace_file
from test_refused import MANY, python, said

Start = Callable[..., Agent]


def df(mounts: set[str]) -> tuple[int, int]:
    """Bytes used and available on these file systems, from df."""
    command = ["df", "--block-size=1", "--output=used,avail", *sorted(mounts)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    pairs = [list(map(int, line.split())) for line in lines]
    assert len(pairs) == len(mounts)
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def test_room_is_what_df_says(start: Start) -> None:
    agent = start(config=QUICK)
    eventually(lambda: agent.latest("tier.used.ratio"), "tiers")

    def mounts() -> dict[str, set[str]]:
        """The mounts of each tier, as they are now."""
        labels = [stream["labels"] for stream in agent.latest("filesystem.total.bytes")]
        tiers = {one["tier"] for one in labels if "tier" in one}
        return {tier: {one["mount"] for one in labels if one.get("tier") == tier} for tier in tiers}

    for tier in mounts():

        def agrees(tier: str = tier) -> bool:
            # Other programs write meanwhile: the value must lie between two looks of df, or nearly.
            try:
                before = df(mounts()[tier])
                time.sleep(0.3)
                available = agent.value("tier.available.bytes", f"tier={tier}")
                used = agent.value("tier.used.ratio", f"tier={tier}")
                after = df(mounts()[tier])
            except (KeyError, subprocess.CalledProcessError):
                # What another program had mounted for a moment has gone.
                return False
            low, high = min(before[1], after[1]), max(before[1], after[1])
            share = after[0] / (after[0] + after[1])
            return low - (1 << 20) <= available <= high + (1 << 20) and abs(used - share) < 0.001

        eventually(agrees, f"tier {tier}")


def test_times_as_people_write_them(start: Start) -> None:
    agent = start(config=QUICK)
    eventually(lambda: agent.rows("SELECT * FROM memory_available_bytes"), "samples")
    count = "SELECT count(*) AS n FROM memory_available_bytes WHERE "
    before = agent.sql(f"{count} ts <= '-1ns'")[0]["n"]
    assert before > 0
    assert agent.sql(f"{count} ts > '-10m'")[0]["n"] >= before
    assert agent.sql(f"{count} '-10m' < ts AND ts >= '2020-01-01T00:00:00Z'")[0]["n"] >= before
    assert agent.sql(f"{count} ts BETWEEN '-2h' AND '-1h'")[0]["n"] == 0
    assert agent.sql(f"{count} ts > '2100-01-01T00:00:00Z'")[0]["n"] == 0
    assert agent.sql(f"{count} ts > instant('-10m')")[0]["n"] >= before
    # The most natural way to print a time gives the column's name to a text.
    named = "SELECT iso(ts) AS ts, value FROM memory_available_bytes WHERE"
    assert len(agent.sql(f"{named} ts > '-10m'")) >= before
    assert len(agent.sql(f"{named} ts >= '2020-01-01T00:00:00Z'")) >= before
    assert agent.sql(f"{named} ts > '2100-01-01T00:00:00Z'") == []
    inner = "SELECT iso(ts) AS ts FROM memory_available_bytes WHERE ts > '-10m'"
    assert len(agent.sql(f"SELECT * FROM ({inner}) WHERE ts > '2020'")) >= before
    assert "iso(instant('-10m'))" in agent.error("sql", f"SELECT * FROM ({inner}) WHERE ts > '-10m'")
    looked = "SELECT count(*) AS n FROM latest WHERE looked"
    assert agent.sql(f"{looked} > '-10m'")[0]["n"] > 0 == agent.sql(f"{looked} < '-10m'")[0]["n"]
    assert "yesterday" in agent.error("sql", f"{looked} > 'yesterday'")
    refused = agent.error("sql", f"{count} ts > 'yesterday'")
    assert "yesterday" in refused and "-1h" in refused and "2026-11-20T08:00:00Z" in refused
    rows = agent.sql("SELECT * FROM history('memory.available.bytes', '-5m', NULL, '10s')")
    assert rows and all(row["ts"] % 10_000_000_000 == 0 for row in rows)
    held = agent.sql("SELECT value FROM asof('memory.available.bytes', '-1ns')")
    assert len(held) == 1 and held[0]["value"] > 0
    assert "10s" in agent.error("sql", "SELECT * FROM history('memory.available.bytes', '-5m', NULL, 'often')")


def test_what_has_ended_is_in_no_sum(start: Start) -> None:
    agent = start(config=QUICK)

    def total() -> float:
        query = "/api/v1/query?query=count(barograph_app_gone_v0)%20or%20vector(0)"
        (series,) = agent.request("GET", query, way="read.sock").json["data"]["result"]
        return float(series["value"][1])

    program = MANY.replace("for i in range(count)})", 'for i in range(count)}, readers="all")')
    assert program != MANY
    with python(agent, program, "gone", 1) as first:
        said(first, 0)
        eventually(lambda: total() == 1, "one runs")
        first.kill()
    # Its last look found its last value; it is not looked at any more.
    eventually(lambda: total() == 0, "none runs", 30)
    history = agent.sql("SELECT count(*) AS n FROM app_gone_v0")
    assert history[0]["n"] > 0


def test_where_nobody_looked_there_is_no_value(start: Start) -> None:
    agent = start(config=QUICK)
    name, table = "memory.total.bytes", "memory_total_bytes"
    query = f"/api/v1/query?query=barograph_{table}%20or%20node_memory_MemTotal_bytes&time="

    def gap_around(ns: int) -> dict[str, int] | None:
        found = agent.sql(f"SELECT ts, until, gap_ns FROM gaps('{name}') WHERE ts < {ns} AND until > {ns}")
        return found[0] if found else None

    def seen(ns: int) -> tuple[int, int]:
        """Number of streams in SQL, and of series in PromQL, that have a value at this time."""
        held = agent.sql(f"SELECT value FROM asof('{name}', {ns})")
        found = agent.request("GET", f"{query}{ns / 1e9:.3f}", way="read.sock").json["data"]["result"]
        return len(held), len(found)

    def interrupted(by: Callable[[], None]) -> dict[str, int]:
        """The gap of some seconds in which nobody looked, and the values beside and in it."""
        eventually(lambda: agent.rows(f"SELECT * FROM {table}"), "samples")
        before = time.time_ns()
        time.sleep(1)
        by()
        middle = time.time_ns() - 1_500_000_000
        # What the next agent writes for a killed one is on disk a moment after it has started.
        gap = eventually(lambda: (gap_around(middle) or {}).get("ts", 0) > before and gap_around(middle), "the gap")
        assert gap
        assert gap["gap_ns"] == gap["until"] - gap["ts"] > 2_000_000_000
        assert gap["ts"] < middle < gap["until"]
        since = f"SELECT count(*) AS n FROM gaps('{name}') WHERE until"
        assert agent.sql(f"{since} > '-10m'")[0]["n"] > 0 == agent.sql(f"{since} < '-10m'")[0]["n"]
        assert "yesterday" in agent.error("sql", f"{since} > 'yesterday'")
        assert seen(middle) == (0, 0)
        assert seen(gap["ts"])[0] == 1 and seen(gap["until"] + 100_000_000) == (1, 1)
        return gap

    def stand_still() -> None:
        agent.freeze()
        time.sleep(3)
        agent.process.send_signal(signal.SIGCONT)

    def begin_again(number: int) -> None:
        agent.stop(number)
        time.sleep(3)
        agent.start()

    # The value never changes: it is nevertheless known which value held, and until when.
    interrupted(stand_still)
    interrupted(lambda: begin_again(signal.SIGINT))
    interrupted(lambda: begin_again(signal.SIGTERM))
    # A killed agent could not record its last look, so the next one does.
    killed = interrupted(lambda: begin_again(signal.SIGKILL))
    (answer,) = agent.get(f"/api/v1/history?match={name}").json
    last = answer["ts"].index(killed["ts"])
    assert last + 1 in answer["begins"] and answer["quality"][last] == "ended"
    newest = agent.sql(f"SELECT quality FROM {table} WHERE newest")
    assert newest == [{"quality": "measured"}]
    ended = agent.sql(f"SELECT count(*) AS n FROM {table} WHERE quality = 'ended'")
    assert ended[0]["n"] >= 4

    # If the machine is restarted, the memory that has the last look is gone. What was on disk is not.
    agent.out("archive", "seal")
    agent.stop(signal.SIGKILL)
    shutil.rmtree(agent.run_dir)
    agent.start()
    newest = f"SELECT ts FROM gaps('{name}') WHERE until IS NOT NULL AND ts > {killed['ts']}"
    (lost,) = eventually(lambda: agent.sql(newest), "the gap is known")
    assert agent.sql(f"SELECT quality FROM {table} WHERE ts = {lost['ts']}") == [{"quality": "measured"}]

    # While an outage lasts, nothing holds either; what was known before it still is.
    held = f"SELECT value FROM asof('{name}', {{}})"
    seen = agent.sql(f"SELECT ts FROM {table} WHERE newest")[0]["ts"]
    assert len(agent.sql(held.format("now_ns()"))) == 1
    agent.stop(signal.SIGKILL)
    eventually(lambda: agent.sql(held.format("now_ns()")) == [], "nobody looks")
    assert len(agent.sql(held.format(seen))) == 1


def test_means_are_over_time(start: Start, tree: Path) -> None:
    """The mean of rare bursts, compared with the test's own clock: half of the samples are of
    bursts, since only changes are samples."""
    agent = start("--sys-root", tree, config=QUICK)
    meminfo = tree / "proc" / "meminfo"
    quiet = re.sub(r"Dirty:.*", "Dirty: 0 kB", meminfo.read_text())
    burst = quiet.replace("Dirty: 0 kB", "Dirty: 1000 kB")
    name, table = "memory.dirty.bytes", "memory_dirty_bytes"
    replace_file(meminfo, quiet)
    eventually(lambda: agent.value(name) == 0, "it is quiet")
    begin, busy = time.time_ns(), 0
    for _ in range(4):
        time.sleep(2.5)
        since = time.time_ns()
        replace_file(meminfo, burst)
        time.sleep(0.8)
        replace_file(meminfo, quiet)
        busy += time.time_ns() - since
    time.sleep(1)
    end = time.time_ns()
    # Looks follow after the end, so that the whole span is known to every query.
    before = agent.value("source.polls.count", "source=memory")
    eventually(lambda: agent.value("source.polls.count", "source=memory") > before + 2, "looks")
    share = busy / (end - begin)
    span = f"{begin}, {end}"
    # A look every 200 ms may be late by one at both ends of each burst, and by more on a busy
    # machine.
    near = pytest.approx(1_024_000 * share, rel=0.4)

    (whole,) = agent.sql(f"SELECT * FROM history('{name}', {span}, 3600000000000)") or [{}]
    assert whole["value"] == whole["mean"] == near
    assert whole["sample_mean"] > 1.7 * whole["mean"], "what was misleading"
    assert whole["held_ns"] == pytest.approx(end - begin, rel=0.05)
    fine = agent.sql(f"SELECT ts, mean, held_ns FROM history('{name}', {span}, '1s')")
    held = sum(row["held_ns"] for row in fine)
    assert held == pytest.approx(whole["held_ns"], abs=1)
    assert sum(row["mean"] * row["held_ns"] for row in fine) / held == pytest.approx(whole["mean"])
    # At the end of an hour, nothing is known after its last look.
    inner = [row["held_ns"] for row in fine[1:-1] if (row["ts"] // 1_000_000_000 + 1) % 3600]
    assert set(inner) == {1_000_000_000}, "also where nothing changed"

    (found,) = agent.sql(f"SELECT value FROM topk('{name}', 1, {span})")
    assert found["value"] == pytest.approx(whole["mean"])
    rows = f"FROM {table} WHERE ts BETWEEN {begin} AND {end}"
    (found,) = agent.sql(f"SELECT twa(value, ts) AS twa, twa(value, ts, quality) AS said, avg(value) AS avg {rows}")
    # Only from the first sample to the last: the quiet before and after them is not included.
    assert found["twa"] == found["said"] == pytest.approx(whole["mean"], rel=0.6)
    assert found["avg"] > 1.3 * found["twa"]
    for q, expect in [(0.5, 0), (1 - share / 2, 1_024_000)]:
        (found,) = agent.sql(f"SELECT value, sample_value, held_ns FROM quantile('{name}', {q}, {span})")
        assert found["value"] == expect and found["held_ns"] == whole["held_ns"], q

    # The tiers have the same result as the samples, computed by another engine.
    agent.ask("archive", "seal")
    files = f"read_parquet('{agent.archive_dir}/1min/**/*.parquet')"
    tier = duckdb.sql(f"SELECT sum(time_mean * held_ns), sum(held_ns), sum(count) FROM {files} WHERE name = '{name}'")
    ((area, held, count),) = tier.fetchall()
    raw = f"read_parquet('{agent.archive_dir}/raw/**/*.parquet')"
    samples = duckdb.sql(f"""
        SELECT sum(value * (next - ts)), sum(next - ts), count(*) FILTER (quality <> 'ended') FROM (
            SELECT ts, value, quality,
                lead(ts) OVER (PARTITION BY life, ts // 3600000000000 ORDER BY number) AS next
            FROM {raw} WHERE name = '{name}')
        """)
    ((area_raw, held_raw, count_raw),) = samples.fetchall()
    assert count == count_raw and held == held_raw
    assert area == pytest.approx(area_raw)


def test_the_last_bucket_of_a_rate_is_right(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree, config=QUICK)
    stat = tree / "proc" / "vmstat"
    before = stat.read_text()
    begin, is_over, rates = time.monotonic(), threading.Event(), []

    def write() -> None:
        """Writes a number of pages that grows by 10,000 a second, also while questions are answered."""
        while not is_over.wait(0.05):
            pages = int((time.monotonic() - begin) * 10_000)
            replace_file(stat, re.sub(r"^pgpgin .*$", f"pgpgin {pages}", before, flags=re.MULTILINE))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while time.monotonic() < begin + 8:
            short = "SELECT ts, value FROM rate('vm.pagein.bytes', '-2s', NULL, '5s') WHERE value > 0"
            rates = agent.sql(short) or rates
            time.sleep(0.05)
        # There is no rate where the counter begins anew (that of the fixture was higher).
        whole = agent.sql("SELECT value FROM rate('vm.pagein.bytes', '-1h', NULL, '1s') WHERE value IS NOT NULL")
    finally:
        is_over.set()
        writer.join()
    # Windows that are shorter than the step and end in the middle of one.
    assert rates, "a window shorter than the step has a rate"
    expect = rates[-1]["value"]
    middle = sorted(row["value"] for row in whole)[len(whole) // 2]
    assert expect == pytest.approx(middle, rel=0.3)
    assert whole[-1]["value"] == pytest.approx(middle, rel=0.6)


def test_sql_has_mathematics(live: Agent) -> None:
    (found,) = live.sql("SELECT sqrt(2) AS a, pow(2, 10) AS b, ln(2) AS c, log10(1000) AS d, floor(1.5) AS e, pi() AS f")
    assert found == pytest.approx({"a": math.sqrt(2), "b": 1024, "c": math.log(2), "d": 3, "e": 1, "f": math.pi})


REQUEST = """\
  fio-1 [000] ..... 6000.000000: block_rq_issue: 259,0 R 4096 () 16384 + 8 none,0,0 [fio]
  fio-1 [000] ..... 6000.000400: block_rq_complete: 259,0 R () 16384 + 8 none,0,0 [0]
"""


def test_requests_are_traced_in_turns_and_their_quantiles_end_with_them(start: Start, tmp_path: Path) -> None:
    tree = machine("nvme-four", tmp_path)
    replace_file(tree / "sys/kernel/tracing/instances/barograph/trace_pipe", REQUEST)
    agent = start(
        "--sys-root", tree, "--block-trace", "auto", config=QUICK + "[sources.block_trace]\nauto_seconds = 4\n"
    )
    eventually(lambda: agent.has("block_trace.on.flag"), "the source")
    p50 = "block_trace.read.latency.p50.seconds"
    assert agent.value("block_trace.on.flag") is False and not agent.has(p50)
    diskstats = tree / "proc/diskstats"
    rest = [line for line in diskstats.read_text().splitlines() if " nvme0n1 " not in line]
    busy_ms = 12_000

    def measured() -> list[dict[str, object]]:
        nonlocal busy_ms
        busy_ms += 5_000
        # Few requests in each look: tracing many is not worth its cost.
        line = f"259 0 nvme0n1 {busy_ms // 500} 10 25600000 {busy_ms} 50000 20 3200000 2500 0 {busy_ms} {busy_ms}"
        replace_file(diskstats, "\n".join([line, *rest]) + "\n")
        return agent.latest(p50)

    (found,) = eventually(measured, "a turn")
    assert found["labels"] == {"device": "nvme0n1"}
    assert found["value"] <= 400e-6 <= found["value"] + found["error"]
    eventually(lambda: not agent.has(p50), "the end of the turn")
    assert agent.value("block_trace.turns.count") == 1 and agent.value("block_trace.on.flag") is False
    # The last value is kept, with the time until which it held.
    ended = f"SELECT quality FROM {p50.replace('.', '_')} ORDER BY ts DESC LIMIT 1"
    eventually(lambda: agent.sql(ended) == [{"quality": "ended"}], "the mark of the last look")


def own_memory(agent: Agent) -> int:
    """Private memory of the agent in bytes: without the segment and its program."""
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)[1]) << 10


def test_what_readers_took_is_given_back_after_they_left(start: Start) -> None:
    # On a busy machine six of them at once take longer than a query may by default.
    agent = start(config=QUICK + "[query]\nseconds_max = 60.0\n")
    eventually(lambda: agent.rows("SELECT * FROM memory_available_bytes"), "samples")
    # All requests that the page makes, some of them at once.
    ways: list[Callable[[], object]] = [
        lambda: agent.get("/api/v1/history?match=*&start=-1h"),
        lambda: agent.get("/api/v1/history?match=*&start=-1h&points=600"),
        lambda: agent.get("/api/v1/latest?match=*"),
        lambda: agent.get("/api/v1/streams?match=*"),
        lambda: agent.post_sql("SELECT s.name, t.name FROM streams s, streams t LIMIT 100000"),
        lambda: agent.post_sql("SELECT group_concat(s.name || t.name) AS names FROM streams s, streams t GROUP BY s.name"),
    ]
    before = own_memory(agent)
    greatest = before
    with ThreadPoolExecutor(len(ways)) as readers:
        for _ in range(8):
            list(readers.map(lambda way: way(), ways))
            greatest = max(greatest, own_memory(agent))
    assert greatest > before + (16 << 20), "too little was asked for to say anything"
    half = (before + greatest) // 2
    eventually(lambda: own_memory(agent) < half, f"less than {half} bytes, of {greatest}, {before} before", 60)
