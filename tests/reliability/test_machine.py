"""The commands in any order on one run folder, with damage in between: what is promised holds after each."""

import contextlib
import io
import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from capspoe import cli, kernels
from capspoe.errors import RunError
from capspoe.run import checkpoint
from runs import QUICK, WAYS, damage, options, same_weights, stopping_after

SMALL = {**QUICK, "limit": 64, "autoencoder_epochs": 2, "epochs": 3, "prior_components": 1}
STEPS = 2 * 2 + 2 * 3


def command(*arguments):
    """(exit code, output), in this process."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said), kernels.use("reference"):
        try:
            cli.main([str(a) for a in arguments])
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
    text = said.getvalue()
    assert "Traceback" not in text, text
    assert "unexpected" not in text, text
    assert code in (0, 1, 130), (code, text)
    return code, text


class RunFolder(RuleBasedStateMachine):
    reference: Path | None = None

    @initialize()
    def begin(self):
        self.home = Path(tempfile.mkdtemp(prefix="capspoe-machine-"))
        self.run = self.home / "run"
        if RunFolder.reference is None:
            RunFolder.reference = Path(tempfile.mkdtemp(prefix="capspoe-reference-")) / "run"
            code, said = self.train(RunFolder.reference)
            assert code == 0, said
        self.lost = False  # no checkpoint is intact, and that was reported

    def train(self, folder):
        return command("train", "digits", "--out", folder, *options(SMALL))

    @rule(steps=st.integers(1, STEPS))
    def train_a_little(self, steps):
        with stopping_after(steps):
            code, said = self.train(self.run)
        self.judge(code, said)

    @rule()
    def train_to_the_end(self):
        code, said = self.train(self.run)
        self.judge(code, said)
        if code == 0:
            assert same_weights(RunFolder.reference, self.run)
            assert checkpoint.newest(self.run).state.stage == "done"
            assert not (self.run / "codes.npy").exists()

    def judge(self, code, said):
        if code == 1:
            assert "is damaged" in said, said
            assert self.hopeless(), said
            self.lost = True
        else:
            self.lost = False

    def hopeless(self):
        """Whether what is needed to resume is really lost."""
        try:
            checkpoint.open_run(self.run)
            checkpoint.newest(self.run)
        except RunError:
            return True
        return False

    @precondition(lambda self: self.run.exists())
    @rule()
    def sample(self):
        code, said = command("sample", self.run, "--out", self.home / "x.npz", "--count", 1)
        if code == 0:
            assert (self.home / "x.npz").exists()
            (self.home / "x.npz").unlink()
        else:
            assert not (self.home / "x.npz").exists()
            assert len(said.strip().splitlines()) == 1, said

    @precondition(lambda self: self.run.exists())
    @rule(choice=st.integers(0, 10**6), how=st.sampled_from(WAYS))
    def damage_a_file(self, choice, how):
        files = sorted(p for p in self.run.rglob("*") if p.is_file())
        if not files:
            return
        damage(files[choice % len(files)], how, random.Random(choice))

    @precondition(lambda self: self.lost)
    @rule()
    def start_over_as_told(self):
        shutil.rmtree(self.run)
        self.lost = False

    @invariant()
    def no_temporary_file_stays(self):
        if getattr(self, "run", None) is not None and self.run.exists():
            assert not [p for p in self.run.rglob("*") if ".writing" in p.name]

    def teardown(self):
        if hasattr(self, "home"):
            shutil.rmtree(self.home, ignore_errors=True)


class TestRunFolder(RunFolder.TestCase):
    settings = settings(max_examples=10, stateful_step_count=8, deadline=None)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(RunFolder.reference.parent)
