"""A checkup as text, and its sentences, which the page has as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from semlex.cli.output import print_note
from semlex.cli.terminal import counted, messages, one_line, output

if TYPE_CHECKING:
    from semlex.types.checkups import AskedHeading, Checkup, CheckupCode, LeftOut, Share, WeightCheckup

SHOWN_DOCUMENTS, SHOWN_HEADINGS, SHOWN_DOMINATING = 10, 3, 5
SHOWN_CHARACTERS = 120
REASONS: dict[CheckupCode, str] = {
    "duplicate": "the same text stands elsewhere, and that was found",
    "no_shared_word": "without the heading the section shares no word with it",
    "below_top_k": "a candidate, and others come before it",
    "beyond_vector_depth": "no candidate: more chunks are nearer, and have better words, than a leg takes",
    "beyond_keyword_depth": "no candidate: more chunks have better words than the leg takes",
}


def short(text: str) -> str:
    """A heading or a name on one line, cut where it is long."""
    line = one_line(text)
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"


def percent(share: float) -> str:
    """A share as a percentage."""
    return f"{100 * share:.0f} %"


def share_words(share: Share) -> str:
    """A share with what it is of, and its interval."""
    low, high = share.interval
    return (
        f"{share.found:,} of {share.asked:,} ({percent(share.share)}; 95 % interval {percent(low)} to {percent(high)})"
    )


def left_out_words(left_out: LeftOut) -> list[str]:
    """What was not asked, each in words."""
    return [
        f"{number:,} {why}"
        for number, why in (
            (left_out.repeated, "stand in three or more places"),
            (left_out.wide, "have more than 12 chunks below them"),
            (left_out.wordless, "have no word"),
            (left_out.without_docstring, "definitions without a docstring"),
            (left_out.empty, "have nothing else below them"),
            (left_out.not_drawn, "not in the sample"),
        )
        if number
    ]


def heading_words(one: AskedHeading) -> str:
    """A heading that misses its section: where it came, and what stands before it."""
    place = "no candidate" if one.rank is None else f"at place {one.rank}"
    names = list(dict.fromkeys(short(name) for name in one.before if name))
    before = f", behind {', '.join(names)}" if names else ""
    return f"{place}{before} [{one.code}]"


def weight_words(weight: WeightCheckup) -> str:
    """What another weight of the vectors would change."""
    low, high = (100 * end for end in weight.interval)
    gain = f"{100 * weight.gain:+.1f} points (95 % interval {low:+.1f} to {high:+.1f})"
    if weight.best == weight.default:
        return f"keep the weight of the vectors, {weight.default:g}: no other one is better"
    if weight.keep:
        usual, best = f"{weight.default:g}", f"{weight.best:g}"
        return f"keep the weight of the vectors, {usual}: another one, {best} at best, changes {gain}"
    return (
        f"a weight of {weight.best:g} for the vectors in place of {weight.default:g} finds {gain}: "
        f"weights={{'vector': {weight.best:g}}} in a search; ask questions of your own first: semlex eval tune"
    )


def print_checkup(told: Checkup) -> None:
    """Prints the report."""
    by = {"hybrid": "words and vectors", "keyword": "words alone", "vector": "vectors alone"}[told.mode]
    output.print(
        f"[bold]{told.result.share:.2f}[/bold] of the headings find their section in the first {told.top} hits"
    )
    output.print(f"  {share_words(told.result)}, searched by {by}")
    if told.reasons.get("duplicate"):
        output.print(f"  with the same text elsewhere counted: {share_words(told.with_duplicates)}")
    depths = ", ".join(f"{percent(share)} in the first {depth}" for depth, share in told.ranks.items())
    output.print(f"  {depths}")
    output.print(f"  {counted(told.headings, 'heading')} in {counted(told.chunks, 'chunk')}")
    if left_out := "; ".join(left_out_words(told.left_out)):
        output.print(f"  not asked: {left_out}")
    if told.reasons:
        output.print("\nWhy the others do not:")
        for code, number in told.reasons.items():
            output.print(f"  {number:,} {REASONS[code]} \\[{code}]")
    _print_documents(told)
    if told.dominating:
        output.print("\nDocuments that outrank the rest:")
        for one in told.dominating[:SHOWN_DOMINATING]:
            share = f"{one.share:.1%} of the hits of others' headings, {one.expected:.1%} of the chunks"
            output.print(f"  {escape(short(one.document))}: {share}")
    if told.weight is not None:
        output.print(f"\n{escape(weight_words(told.weight))}")
        output.print(f"  by words alone {percent(told.weight.words)}, by vectors alone {percent(told.weight.vectors)}")
    for note in told.notes:
        print_note(note)
    embedded = f", {counted(told.embedded, 'chunk')} embedded anew" if told.embedded else ""
    messages.print(f"[dim]{told.seconds:.1f} s{embedded}; nothing was written[/dim]")


def _print_documents(told: Checkup) -> None:
    never = [one for one in told.documents if one.is_never_found]
    if not never:
        return
    found = f"{counted(len(never), 'document')} of {len(told.documents):,}"
    output.print(f"\n{found} found by none of the headings that were asked:")
    for document in never[:SHOWN_DOCUMENTS]:
        name = f"{document.source}: {document.document}" if document.source else document.document or "(no name)"
        output.print(f"  {escape(short(name))}")
        for one in document.missed[:SHOWN_HEADINGS]:
            output.print(f"    {escape(f'{short(one.heading)}: {heading_words(one)}')}")
        if len(document.missed) > SHOWN_HEADINGS:
            output.print(f"    and {len(document.missed) - SHOWN_HEADINGS:,} more")
    if len(never) > SHOWN_DOCUMENTS:
        output.print(f"  and {len(never) - SHOWN_DOCUMENTS:,} more; --json and --html list all")
