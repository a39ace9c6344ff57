"""The command line: finds the command and reports errors. Heavy imports wait until a command is parsed."""

import os
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module

from capspoe import __version__
from capspoe.errors import CapspoeError, CapspoeWarning
from capspoe.memory import process_limits

COMMANDS = {  # each one is a function of this name in capspoe.commands.NAME
    "train": ("DATA", "train on mnist, fashion-mnist, cifar10, digits, folders of images, files, an .npy or .npz"),
    "sample": ("[RUN]", "generate images from a trained run, as .png or .npz"),
    "sort": ("FOLDER", "sort a folder of images into groups that look alike"),
    "encode": ("RUN", "which capsule is on for each image, and its pose, as .npz, .csv or .parquet"),
    "explain": ("RUN", "pull apart objects that overlap in an image, as .png or .npz"),
    "complete": ("RUN", "fill in a hidden part of an image, in several ways, as .png or .npz"),
    "score": ("RUN", "how likely each image is under the model, as .csv or .parquet"),
    "reconstruct": ("RUN", "images and their reconstructions, as .png"),
    "traverse": ("RUN", "what each dimension of a capsule's pose changes, as .png"),
    "routing": ("RUN", "how an image is routed, as .svg"),
    "audit": ("RUN", "what routing changes: controls, starved capsules, as .svg and .json"),
    "report": ("[RUN]", "one page about the run, with every figure: report.html"),
    "explore": ("[RUN]", "play with the capsules in your browser"),
    "evaluate": ("RUN ...", "score trained runs beside baselines: evaluation.json and a table"),
    "export": ("RUN", "export the network: Hugging Face Hub, ONNX, torch.export, a web page"),
    "data": ("", "list, fetch and verify data sets"),
}
_LIST = "\n".join(f"  {f'{name} {argument}':<17} {text}" for name, (argument, text) in COMMANDS.items())
SUMMARY = f"""\
capspoe: capsule networks trained without labels

usage: capspoe COMMAND ...          `capspoe COMMAND --help` shows the options

{_LIST}

  --version         print the version        --debug   show the traceback of an error
  [RUN]             without a run, the small MNIST network that ships with the package"""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; exit with 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    if arguments is None:
        arguments = sys.argv[1:]
    debug = "--debug" in arguments
    argv = [argument for argument in arguments if argument != "--debug"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(SUMMARY)
        sys.exit(0 if argv else 2)
    if argv[0] == "--version":
        print(f"capspoe {__version__}")
        sys.exit(0)
    if argv[0] not in COMMANDS:
        hint = "capspoe --help lists the commands"
        if near := get_close_matches(argv[0], COMMANDS, 1):
            hint = f"did you mean {near[0]!r}?"
        print(f"capspoe: there is no command {argv[0]!r}; {hint}", file=sys.stderr)
        sys.exit(2)
    # Of several processes of torchrun, only process 0 runs a command; training alone is shared by all.
    process = 0
    if "TORCHELASTIC_RUN_ID" in os.environ:
        process = int(os.environ.get("RANK", 0))
    if process and argv[0] != "train":
        return
    warnings.showwarning = show_warning
    try:
        getattr(import_module(f"capspoe.commands.{argv[0]}"), argv[0])(argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader has gone, as in `| head`; Python must not fail again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if debug:
            raise
        # By name, because importing the class would import PyTorch.
        interrupted = type(error).__name__ == "Interrupted"
        if not (interrupted and process):
            print(f"capspoe: {explain(error, argv[0])}", file=sys.stderr)
        sys.exit(130 if interrupted else 1)


def show_warning(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
    """Print our own warnings as one line; those of libraries only with --debug."""
    if issubclass(category, CapspoeWarning):
        print(f"capspoe: warning: {' '.join(str(message).split())}", file=sys.stderr)
    elif "--debug" in sys.argv:
        print(f"{category.__name__}: {message}", file=sys.stderr)


# What to do about a lack of memory in each command, and the many ways in which libraries report it.
USE_LESS = {
    "train": "lower --batch-size, --channels or --layers, or use fewer images with --limit",
    "sample": "lower --count, or write an .npz, which needs no more memory for more images",
    "encode": "give it fewer images",
    "evaluate": "use --quick or lower --samples",
}
NO_MEMORY = ("allocate", "out of memory", "bad_alloc", "failed to map segment", "can't start new thread")


def explain(error: Exception, command: str = "") -> str:
    """One line for a person."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, CapspoeError):
        return text
    limits = process_limits()
    words: tuple[str, ...] = NO_MEMORY
    allowed = ""
    if limits:
        # Under a limit, a library that does not load is one that found no room.
        words = (*NO_MEMORY, "shared object")
        allowed = f" (this process may use {min(limits) >> 20} MB)"
    if isinstance(error, MemoryError) or any(word in text.lower() for word in words):
        advice = USE_LESS.get(command, "close other programs, or raise the limit")
        return f"out of memory{allowed}; {advice}"
    return f"unexpected {type(error).__name__}: {text[:300]} (--debug shows where)"
