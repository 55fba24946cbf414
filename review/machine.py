"""A review for programs: JSON with everything, GitHub's workflow commands, JUnit XML."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import PurePosixPath
from xml.etree import ElementTree

from kvplan.review import rollout_words
from kvplan.review.changes import Change
from kvplan.review.classes import EngineClass
from kvplan.review.fold import folded, places
from kvplan.review.judge import Exempt, Judgement, categories
from kvplan.review.review import PairReview, RefusedPair, Review
from kvplan.review.rollout import ClassPair, FleetRollout, ModelRollout
from kvplan.review.rules import RULES, Category
from kvplan.review.summary import doubts, headline, outcome, refusal, warnings
from kvplan.review.verdict import verdict, verdict_parts

# An annotation lists at most this many changes of one plan.
SHORT = 12


def as_json(review: Review, judgement: Judgement, rollout: FleetRollout | None = None) -> str:
    """Every change of every plan as JSON; docs/review.md describes the keys."""
    refused = [_refused(one) for one in review.refused]
    answer: dict[str, object] = {
        **({"error": {key: refused[0][key] for key in ("code", "message", "help")}} if refused else {}),
        "summary": {
            "changed": len(review.changed), "new": len(review.new), "gone": len(review.gone),
            "renamed": len(review.renamed), "same": review.same,
        },
        "verdict": review.verdict,
        "sentence": verdict(review),
        "fails": list(judgement.rules),
        "layouts": [
            {"path": one.path, "key": one.key, "before": one.before, "after": one.after} for one in review.layouts
        ],
        "doubts": doubts(review),
        "damaged": list(review.damaged),
        "refused": refused,
        "missing": [one.title for one in review.missing],
        "plans": [
            _pair(review, pair, failing) for pair, failing in judgement.pairs
        ],
        "accepted": [_exempt(one) for one in judgement.used],
        "unused": [_exempt(one) for one in judgement.unused],
    }  # fmt: skip
    if rollout is not None:
        answer["fleet"] = _fleet(rollout)
    return json.dumps(answer, indent=2)


def github(review: Review, judgement: Judgement, folder: str, rollout: FleetRollout | None = None) -> str:
    """Annotations: one for the review, and one for the file of each plan, an error if the plan fails."""
    lines = [_annotation("notice", {"title": "kvplan diff"}, _first(review, judgement))]
    lines += [_annotation("error", _at(one), refusal(one)) for one in review.refused]
    lines += [_annotation("warning", {"title": "kvplan diff"}, one) for one in warnings(review)]
    for pair, failing in judgement.pairs:
        listed_changes = failing or pair.changes
        words = {"file": _file(pair, folder), "title": ", ".join(categories(listed_changes))}
        lines.append(_annotation("error" if failing else "notice", words, _short(pair, listed_changes)))
    lines += [
        _annotation("warning", {"file": one.place.path, "line": str(one.place.line), "title": "kvplan diff"},
                    judgement.useless(one))
        for one in judgement.unused
    ]  # fmt: skip
    if rollout is not None:
        lines.append(_annotation("notice", {"title": "kvplan diff --fleet"}, _fleet_text(rollout)))
    return "\n".join(lines)


def _first(review: Review, judgement: Judgement) -> str:
    """The number of changed plans; if there are any, also the verdict and what fails, a step on each line."""
    if not review.pairs and not review.refused:
        return headline(review)
    steps = [text for part in verdict_parts(review) for text in (part.sentence, *part.numbered)]
    return "\n".join([headline(review), *steps, outcome(judgement)])


def _at(one: RefusedPair) -> dict[str, str]:
    place = {"file": one.place.path, "line": str(one.place.line)} if one.place else {}
    return {**place, "title": one.code}


def junit(review: Review, judgement: Judgement, rollout: FleetRollout | None = None) -> str:
    """A test for each changed, new or removed plan, which fails if its changes do; a refused pair is an error."""
    counts = {
        "tests": str(len(review.pairs) + len(review.refused)),
        "failures": str(sum(bool(failing) for _, failing in judgement.pairs)),
        "errors": str(len(review.refused)),
    }
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "kvplan diff", **counts})
    for one in review.refused:
        folder, _, name = one.title.rpartition("/")
        case = ElementTree.SubElement(suite, "testcase", {"classname": folder or one.of, "name": name or one.pair})
        about = {"type": one.code, "message": verdict(review)}
        ElementTree.SubElement(case, "error", about).text = refusal(one)
    for pair, failing in judgement.pairs:
        path = PurePosixPath(pair.title)
        case = ElementTree.SubElement(suite, "testcase", {"classname": str(path.parent), "name": path.name})
        if failing:
            about = {"type": ", ".join(categories(failing)), "message": verdict(review.only(pair))}
            ElementTree.SubElement(case, "failure", about).text = _whole(pair, failing)
        if rest := tuple(change for change in pair.changes if change not in failing):
            ElementTree.SubElement(case, "system-out").text = _whole(pair, rest)
    if told := warnings(review):
        ElementTree.SubElement(suite, "system-err").text = "\n".join(told)
    if rollout is not None:
        ElementTree.SubElement(suite, "system-out").text = _fleet_text(rollout)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode")


def _fleet(rollout: FleetRollout) -> dict[str, object]:
    return {
        "engines": rollout.engines,
        "draining": list(rollout.draining),
        "others": list(rollout.others),
        "classes": [_class(one) for one in rollout.classes],
        "models": [_model(one) for one in rollout.models],
    }


def _fleet_text(rollout: FleetRollout) -> str:
    return "\n".join([rollout_words.headline(rollout), *rollout_words.sentences(rollout)])


def _class(one: EngineClass) -> dict[str, object]:
    now, then = ({"model_digest": each.model_digest, "side": each.side, "side_key": each.side_key} if each else None
                 for each in (one.now, one.then))  # fmt: skip
    about = {"role": one.now.role, "model": one.now.model, "protocol": one.now.protocol, "rolls": one.rolls}
    others = [each.side_key for each in one.others]
    return {"names": list(one.names), **about, "now": now, "then": then, "others": others, "plans": list(one.plans)}


def _model(one: ModelRollout) -> dict[str, object]:
    orders = [{**asdict(order), "alone": order.alone} for order in one.orders]
    words = {"order": one.best.name, "sentence": rollout_words.advice(one)}
    return {"model": one.model, **words, "orders": orders, "pairs": [_class_pair(pair) for pair in one.pairs]}


def _class_pair(one: ClassPair) -> dict[str, object]:
    """A pair of classes by their positions, with its plan, or the reason why it has none, in every state."""
    states = {word: getattr(one, word) for word in ("before", "prefill_first", "decode_first", "after", "settled")}
    about = {"prefill": one.prefill, "decode": one.decode, "engines": one.engines, "verdict": one.verdict}
    return {**about, **{word: {"plan": found.plan, "reason": found.reason} for word, found in states.items()}}


def _pair(review: Review, pair: PairReview, failing: tuple[Change, ...]) -> dict[str, object]:
    files = {"before": pair.pair.before, "after": pair.pair.after}
    return {
        "name": pair.title,
        **{name: file.path if file else None for name, file in files.items()},
        "compared_with": pair.nearest and pair.nearest.path,
        "verdict": pair.verdict,
        "sentence": verdict(review.only(pair)),
        "rolls": list(pair.rolls),
        "categories": list(categories(failing)),
        "changes": [{**_change(change), "fails": change in failing} for change in pair.changes],
    }


def _refused(one: RefusedPair) -> dict[str, object]:
    about = {name: getattr(one, name) for name in ("pair", "of", "code", "message", "help")}
    return {"name": one.title, **about, "path": one.place and one.place.path, "line": one.place and one.place.line}


def _change(change: Change) -> dict[str, object]:
    subject = change.subject
    about = {name: getattr(subject, name) for name in ("side", "name", "part", "word", "unit")}
    values = {"before": change.before, "after": change.after, "workers": change.workers}
    return {"rule": change.rule, "category": RULES[change.rule].category, **about, **values}


def _exempt(one: Exempt) -> dict[str, object]:
    return {"rule": one.word, "pair": one.pair, "reason": one.reason, "path": one.place.path, "line": one.place.line}


def _file(pair: PairReview, folder: str) -> str:
    """The path of a plan in the new folder, or in the old one if it was removed."""
    file = pair.pair.after or pair.pair.before
    path = file.path if file else ""
    return f"{folder}/{path}" if path and PurePosixPath(folder).suffix == "" else folder


def _short(pair: PairReview, changes: tuple[Change, ...]) -> str:
    """The first SHORT changes, without details that follow from others."""
    news = tuple(change for change in changes if not RULES[change.rule].detail) or changes
    lines = _lines(pair, news)
    return "\n".join(lines[:SHORT] + ([f"and {len(lines) - SHORT} more"] if len(lines) > SHORT else []))


def _whole(pair: PairReview, changes: tuple[Change, ...]) -> str:
    return "\n".join(_lines(pair, changes))


def _lines(pair: PairReview, changes: tuple[Change, ...]) -> list[str]:
    """Each change once, with its sides."""
    found = folded([replace(pair, changes=changes)])
    costs = any(RULES[change.rule].category is Category.COST for change in changes)
    near = [f"compared with {pair.nearest.title}:"] if pair.nearest and costs else []
    return near + [" ".join(filter(None, [one.rule, places(one.where, 1), one.text()])) for one in found]


def _annotation(level: str, words: dict[str, str], text: str) -> str:
    given = ",".join(
        f"{name}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}" for name, value in words.items()
    )
    return f"::{level} {given}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
