"""A load's part of the reports: what was asked, what was hit, and what the figures are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from benchserver.line import BAD, PLAIN, Line
from benchserver.load.ideal import Ideal, Tally
from benchserver.scenarios.load.config import LoadConfig
from benchserver.scenarios.load.records import Missing
from benchserver.scenarios.load.run import LoadRun
from benchserver.scenarios.load.totals import Totals
from benchserver.section import Section
from benchserver.stats.limit import Measurement
from protocol.counters import Counters


def section_of(config: LoadConfig, run: LoadRun, described: str, chunk_tokens: int) -> Section:
    """Return the section of a run, as far as it has come."""
    document = document_of(config, run, chunk_tokens)
    measurement = run.measurement()
    return Section(
        key="load",
        title="Load",
        lines=tuple(_lines(config, run, described, measurement)),
        document={**document, "measurement": asdict(measurement)},
    )


def document_of(config: LoadConfig, run: LoadRun, chunk_tokens: int) -> Mapping[str, Any]:
    """Return what programs read of a load."""
    totals, duration_s = run.totals, run.duration_s
    return {
        "workload": config.workload,
        "loop": "open" if run.is_open else "closed",
        "clients": config.clients,
        "concurrency": config.concurrency,
        "rate_asked_per_s": run.planned / duration_s if run.is_open and duration_s else None,
        "rate_achieved_per_s": _per_s(totals.done, duration_s),
        "with_server_mean": run.with_server,
        "requests": {
            "planned": run.planned,
            "done": totals.done,
            "failed": totals.failed,
            "unfinished": max(0, run.planned - totals.done),
            "warmup": totals.warmup,
            "too_short": totals.too_short,
        },
        "duration_s": duration_s,
        "warmup_s": config.warmup_s,
        "verify": config.verify,
        "share_verified": share_verified(totals),
        "digests": config.digests,
        "hits": {
            **ideal_hits(run.ideal),
            "measured": _hits(totals, chunk_tokens),
            "server": server_hits(run.account.since(run.counters)),
            "asked": {"chunks": totals.asked_chunks, "tokens": totals.asked_tokens},
            "found_warm_chunks": totals.found_warm_chunks,
        },
        "missing": {
            "not_visible_yet": totals.missing[Missing.NOT_VISIBLE],
            "dropped_chunks": run.account.dropped,
            "dropped_share": run.account.share,
            "evicted_chunks": totals.missing[Missing.EVICTED],
            "unloaded_chunks": totals.missing[Missing.UNLOADED],
            "known": totals.missing[Missing.KNOWN],
            "untold": totals.missing[Missing.UNTOLD],
            "unexplained": totals.missing[Missing.UNEXPLAINED],
        },
        "promised": {"not_delivered_chunks": totals.undelivered_chunks},
        "bytes": {"stored": totals.stored_bytes, "retrieved": totals.retrieved_bytes},
        "goal": config.goal or None,
        "goodput_per_s": _per_s(totals.good, duration_s) if config.goal else None,
        "good_share": totals.good / totals.done if config.goal and totals.done else None,
        "seconds": [asdict(row) for row in totals.timeline.rows()],
    }


def share_verified(totals: Totals) -> float | None:
    """Return the share of all hits that were read of which every byte was looked at."""
    return totals.hits_verified / totals.hits_read if totals.hits_read else None


def _hits(totals: Totals, chunk_tokens: int) -> dict[str, Any]:
    """Return the hits, and their share of all tokens that were asked for."""
    tokens = totals.hit_chunks * chunk_tokens
    ratio = tokens / totals.asked_tokens if totals.asked_tokens else None
    return {"chunks": totals.hit_chunks, "tokens": tokens, "ratio": ratio}


def ideal_hits(ideal: Ideal) -> dict[str, Any]:
    """Return what ideal caches would have had of the same requests, and how to read it."""
    infinite, lru = ideal.infinite, ideal.lru
    return {
        "ideal_infinite": _tally(infinite),
        "ideal_infinite_bound": ideal.bound,
        "ideal_lru": None if lru is None else {**_tally(lru), "capacity_chunks": ideal.lru_chunks},
        "ideal_lru_missing": ideal.why_no_lru,
    }


def server_hits(since: Counters | None) -> dict[str, Any] | None:
    """Return what the server itself has counted since the run began, its warm-up included."""
    if since is None or not since.asked_tokens:
        return None
    return {
        "asked_tokens": since.asked_tokens,
        "tokens": since.hit_tokens,
        "l1_tokens": since.hit_l1_tokens,
        "l2_tokens": since.hit_l2_tokens,
        "ratio": since.hit_tokens / since.asked_tokens,
    }


def _tally(tally: Tally) -> dict[str, Any]:
    return {"chunks": tally.hit_chunks, "tokens": tally.hit_tokens, "ratio": tally.ratio}


def _per_s(count: int, duration_s: float) -> float | None:
    return count / duration_s if duration_s else None


def _lines(
    config: LoadConfig, run: LoadRun, described: str, measurement: Measurement
) -> list[Line]:
    totals, duration_s = run.totals, run.duration_s
    pace = "open loop" if run.is_open else "closed loop"
    who = f"{config.clients} clients x {config.concurrency} at once"
    rate = _per_s(totals.done, duration_s) or 0.0
    lines = [
        Line(f"  {described}; {pace}, {who}"),
        Line(f"  {totals.done} requests in {duration_s:.2f} s: {rate:.2f}/s{_planned(run)}"),
        *_goal_lines(config, totals, duration_s),
        *_with_server_lines(config, run),
        *(Line(text) for text in hit_texts(totals, run.ideal)),
        Line(server_text(run.account.since(run.counters))),
        *_missing_lines(totals),
        Line(_verified_text(config, totals)),
    ]
    if measurement.valid:
        return [
            *lines,
            Line("  Measurement: valid, nothing left late, no core of ours was full"),
        ]
    head = f"limit: {measurement.limit}" if measurement.limit else "no limit is known"
    told = [Line(f"    {reason}", BAD) for reason in measurement.reasons]
    return [*lines, Line(f"  Measurement: INVALID, {head}", BAD), *told]


def _goal_lines(config: LoadConfig, totals: Totals, duration_s: float) -> list[Line]:
    """Say how many requests kept the goal: the goodput."""
    if not config.goal:
        return []
    share = f" ({totals.good / totals.done:.1%})" if totals.done else ""
    good = f"{totals.good} of {totals.done}{share}, {_per_s(totals.good, duration_s) or 0.0:.2f}/s"
    return [Line(f"  Goodput: {good}, with {config.goal}")]


def _with_server_lines(config: LoadConfig, run: LoadRun) -> list[Line]:
    """Say how many requests the server really had at once."""
    mean, most = run.with_server, config.clients * config.concurrency
    if mean is None:
        return []
    rest = "" if run.is_open else "; the rest of the time was ours, or the prefill's"
    return [Line(f"  The server had {mean:.2f} of {most} requests at once on average{rest}")]


def _planned(run: LoadRun) -> str:
    unfinished = max(0, run.planned - run.totals.done)
    told = f", {unfinished} of {run.planned} planned not finished" if unfinished else ""
    warmup = f"; {run.totals.warmup} more in the warm-up" if run.totals.warmup else ""
    return told + warmup


def hit_texts(totals: Totals, ideal: Ideal) -> list[str]:
    """Return what was hit, and what ideal caches would have of all that was sent."""
    hit_tokens = totals.hit_chunks * ideal.infinite.chunk_tokens
    lru, bound = ideal.lru, f" ({ideal.bound})" if ideal.bound else ""
    measured = (
        f"{_share(totals.hit_chunks, totals.asked_chunks)} chunks, "
        f"{_share(hit_tokens, totals.asked_tokens)} tokens"
    )
    return [
        f"  Hits: {measured}",
        f"    by a cache that never forgets: {_tally_text(ideal.infinite)}{bound}",
        f"    by an LRU cache as large as L1: {_tally_text(lru) if lru else ideal.why_no_lru}",
    ]


def server_text(since: Counters | None) -> str:
    """Return what the server says of its hits."""
    if since is None or not since.asked_tokens:
        return "    by the server's own count: it does not say"
    return f"    by the server's own count: {_share(since.hit_tokens, since.asked_tokens)} tokens"


def _tally_text(tally: Tally) -> str:
    chunks = _share(tally.hit_chunks, tally.asked_chunks)
    return f"{chunks} chunks, {_share(tally.hit_tokens, tally.asked_tokens)} tokens"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({part / whole:.1%})" if whole else "")


def _missing_lines(totals: Totals) -> list[Line]:
    bad = (Missing.UNEXPLAINED, Missing.UNTOLD)
    lines = [
        Line(
            f"  Missing: {count} LOOKUPs fell short; the first missing chunk was {why.value}",
            BAD if why in bad else PLAIN,
        )
        for why, count in totals.missing.items()
    ]
    if totals.undelivered_chunks:
        text = f"  Not delivered: {totals.undelivered_chunks} chunks that LOOKUP had promised"
        lines.append(Line(text, BAD))
    if totals.found_warm_chunks:
        lines.append(
            Line(f"  Found warm: {totals.found_warm_chunks} chunks that this run had not stored")
        )
    return lines


def _verified_text(config: LoadConfig, totals: Totals) -> str:
    share = share_verified(totals)
    seen = "no hit to verify" if share is None else f"every byte of {share:.1%} of the hits"
    off = "; the server's digests were not compared (--digests off)"
    return f"  Verified (--verify {config.verify}): {seen}{off if config.digests == 'off' else ''}"
