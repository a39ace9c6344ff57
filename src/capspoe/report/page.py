"""The page put together."""

from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import numpy as np

from capspoe import __version__, checkpoint, hub
from capspoe.encoding import open_for
from capspoe.errors import DataError, InputError
from capspoe.figures.curves import read_metrics
from capspoe.figures.gallery import Gallery
from capspoe.figures.reconstruction import Reconstruction
from capspoe.figures.routing import one_image
from capspoe.figures.svg import STYLE
from capspoe.model import CapsulePoE
from capspoe.report import facts, sections
from capspoe.report.html import nested_tables, pairs_table, section
from capspoe.report.sections import Subject

IMAGES = 10_000  # test images looked at, at most
_CONTENTS = {
    "generated": "Figure 3: generated", "routing": "Figure 1: routing", "network": "Figure 2: network",
    "capsules": "Capsules", "traversals": "Traversals", "reconstructions": "Reconstructions",
    "training": "Training", "evaluation": "Evaluation", "made": "How it was made",
}  # fmt: skip


def write_report(run: Path, image: int = 0) -> Path:
    """Write RUN/report.html and RUN/figures, and give the path of the page."""
    run = Path(run)
    model = CapsulePoE.load(run)
    subject, missing = open_subject(run, model, image)
    with checkpoint.writing(run):
        subject.figures.mkdir(parents=True, exist_ok=True)
    page = render(subject, missing, image)
    path = run / "report.html"
    with checkpoint.writing(run):
        checkpoint.write_atomically(path, page.encode(errors="replace"))
    return path


def open_subject(run: Path, model: CapsulePoE, image: int) -> tuple[Subject, str]:
    """The run with its test images, or without them and the reason why."""
    try:
        source = open_for(model, None, "test")
        pixels = source.batch(np.arange(min(len(source), IMAGES)))
    except (DataError, InputError) as error:  # InputError: the run's own path is there no more
        home = model.config.data.data
        reason = str(error).replace(
            home, Path(home).name or home
        )  # a page that is shown around names no folders
        return Subject(run, model, None, np.zeros((0, *model.image), np.uint8), None), reason
    one_image(source, image)  # a wrong number is said before the work begins
    return Subject(run, model, source, pixels, model.encode(pixels)), ""


def render(subject: Subject, missing: str, image: int) -> str:
    """The page as text."""
    model, run, state = subject.model, subject.run, hub.newest(subject.run).state
    evaluation = facts.read_json(run / "evaluation.json")  # first, lest the work be lost to a damaged file
    found: dict[str, str] = {"generated": sections.generated(subject)}
    claims: Gallery | None = None
    back: Reconstruction | None = None
    busiest = int(model.prior.use.argmax())
    if subject.source is not None:
        found["routing"] = sections.routing(subject, image)
    found["network"] = sections.network(subject)
    if subject.source is not None:
        found["capsules"], claims = sections.capsules(subject)
        busiest = int(claims.share.argmax())
    found["traversals"] = sections.traversals(subject, busiest)
    if subject.source is not None:
        found["reconstructions"], back = sections.reconstruction(subject)
    found["training"] = sections.training(subject)
    if evaluation is not None:
        tables = f'<div class="tables">{nested_tables(evaluation)}</div>'
        found["evaluation"] = section("evaluation", "Evaluation", "", tables)
    found["made"] = _made(subject)
    found = {name: html for name, html in found.items() if html}
    template = Template((files("capspoe.report") / "template.html").read_text(encoding="utf-8"))
    style = (files("capspoe.report") / "style.css").read_text(encoding="utf-8")
    J, data = model.top.upper[0], _data_name(model)
    title = f"{J} capsules trained without labels on {data}"
    return template.substitute(
        title=escape(title),
        description=escape(f"A run of capspoe: {title}, with every figure of the paper's kind."),
        style=f"{style}\n{STYLE}",
        lead=_lead(subject, state.seconds),
        notice=_notice(state, missing),
        facts=_facts(model, state.seconds, claims, back),
        contents="\n".join(f'<li><a href="#{name}">{_CONTENTS[name]}</a></li>' for name in found),
        sections="\n".join(found.values()),
        footer=f"Made by capspoe {__version__}, an implementation of Hauser 2019, <i>Training capsules as a "
        "routing-weighted product of expert neurons</i> (arXiv 1907.11639). This page needs no other file.",
    )


def _data_name(model: CapsulePoE) -> str:
    known = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "digits": "digits"}
    name = model.config.data.data
    return known.get(name, Path(name).name or name)


def _lead(subject: Subject, seconds: float) -> str:
    model = subject.model
    (I, M), (J, N) = model.stack[0].lower, model.top.upper
    machine = facts.machine(subject.run)
    images = f" on {machine['images']:,} images" if isinstance(machine.get("images"), int) else ""
    cores = f" on a machine with {machine['cores']} cores" if machine.get("cores") else ""
    time = f" in {facts.duration(seconds)}{cores}" if seconds else ""
    return escape(
        f"{I} capsules of {M} neurons below, {J} of {N} above, trained{images}{time}. Training saw no label; where "
        "labels are shown here, they were looked up afterwards."
    )


def _notice(state: checkpoint.State, missing: str) -> str:
    notes = []
    if state.stage != "done":
        notes.append(f"This run is not finished: it stands at step {state.step} of stage {state.stage!r}.")
    if missing:
        notes.append(f"Its test images cannot be had, so figures of real images are left out ({missing}).")
    return "".join(f'<p class="notice">{escape(note)}</p>' for note in notes)


def _facts(model: CapsulePoE, seconds: float, claims: Gallery | None, back: Reconstruction | None) -> str:
    known = [(f"{sum(p.numel() for p in model.parameters() if p.requires_grad):,}", "parameters")]
    if seconds:
        known.append((facts.duration(seconds), "to train"))
    if back is not None:
        known.append((f"{back.error[2].mean():.4f}", "mean squared error of a pixel through one capsule"))
        known.append((f"{back.error[1].mean():.4f}", "the same through the autoencoder alone"))
    if claims is not None and claims.label_share is not None:
        purity = float((claims.share * claims.label_share.max(-1)).sum())
        known.append((f"{100 * purity:.1f} %", "of test images bear the commonest label of their capsule"))
    return "\n".join(f"<li><b>{escape(a)}</b><span>{escape(b)}</span></li>" for a, b in known)


def _made(subject: Subject) -> str:
    run, config = subject.run, subject.model.config
    name = escape(subject.name)
    parts = [
        f"<pre><code>{escape(facts.made_by(config))} --out {name}\ncapspoe report {name}</code></pre>",
        "<p>The same command with the same seed repeats the run. The figures are files of their own in "
        f"<code>{name}/figures</code>.</p>",
    ]
    times = facts.timings(read_metrics(run), config.training.batch)
    tables = [nested_tables(times, "timings")] if times else []
    if machine := facts.machine(run):
        tables.append(pairs_table(machine, "machine"))
    names = {"data": "images", "autoencoder": "autoencoder", "capsules": "capsules", "training": "training"}
    tables += [
        pairs_table(values, f"settings: {names[part]}") for part, values in facts.settings(config).items()
    ]
    columns = f'<div class="columns">{"".join(f"<div class=tables>{table}</div>" for table in tables)}</div>'
    return section("made", "How it was made", "", "".join(parts) + columns)
