"""The command line: parses and calls, nothing else. Heavy imports wait until a command has been understood."""

import os
import sys
import warnings
from importlib import import_module

from capspoe import __version__
from capspoe.errors import CapspoeError, CapspoeWarning

SUMMARY = """capspoe: capsule networks trained without labels

usage: capspoe COMMAND ...          capspoe COMMAND --help tells more

  train DATA        train on mnist, fashion-mnist, cifar10, digits, a folder of images, an .npy or .npz
  sample RUN        new images from a trained run, as .png or .npz
  encode RUN        which capsule is on for each image, and its numbers, as .npz
  reconstruct RUN   images and what comes back through the autoencoder and the capsules, as .png
  traverse RUN      what each number of a capsule changes, as .png
  routing RUN       how an image is routed, as .svg, and where its capsule looks, as .png
  report RUN        one page about the run: report.html, with every figure
  explore RUN       a local web page on which to play with the capsules
  evaluate RUN      how good a trained run is, beside baselines, as evaluation.json and a table
  export RUN        the network for other programs: a folder for the Hub, ONNX, torch.export
  data              list, fetch and verify data sets
  bench             how fast the kernels are on this machine

  --version         the version        --debug   show the traceback of an error"""


COMMANDS = {  # where each one lives, under capspoe.commands
    "train": "training",
    "sample": "using",
    "encode": "using",
    "export": "exporting",
    "explore": "using",
    "reconstruct": "looking",
    "traverse": "looking",
    "routing": "looking",
    "report": "looking",
    "evaluate": "measuring",
    "bench": "measuring",
    "data": "data",
}
SHARED = ("train", "encode", "evaluate")  # by all processes of torchrun together; the rest by the first alone


def main(arguments: list[str] | None = None) -> None:
    """Run a command; exit with 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in argv
    argv = [a for a in argv if a != "--debug"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(SUMMARY)
        sys.exit(0 if argv else 2)
    if argv[0] == "--version":
        print(f"capspoe {__version__}")
        sys.exit(0)
    if argv[0] not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(argv[0], COMMANDS, 1)
        hint = f"did you mean {near[0]!r}?" if near else "capspoe --help lists the commands"
        print(f"capspoe: there is no command {argv[0]!r}; {hint}", file=sys.stderr)
        sys.exit(2)
    process = int(os.environ.get("RANK", 0)) if "TORCHELASTIC_RUN_ID" in os.environ else 0
    if process and argv[0] not in SHARED:
        return
    warnings.showwarning = tell
    try:
        getattr(import_module(f"capspoe.commands.{COMMANDS[argv[0]]}"), argv[0])(argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if debug:
            raise
        interrupted = type(error).__name__ == "Interrupted"
        if not (interrupted and process):
            print(f"capspoe: {explain(error, argv[0])}", file=sys.stderr)
        sys.exit(130 if interrupted else 1)


def tell(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
    """A warning of our own is one line for a person; those of libraries are for --debug."""
    if issubclass(category, CapspoeWarning):
        print(f"capspoe: warning: {' '.join(str(message).split())}", file=sys.stderr)
    elif "--debug" in sys.argv:
        print(f"{category.__name__}: {message}", file=sys.stderr)


# What takes memory in each command, and how a library says that there was none: by many words.
LOWER = {
    "train": "lower --batch or --channels, or use fewer images with --limit",
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
    if isinstance(error, MemoryError) or any(words in text.lower() for words in NO_MEMORY):
        from capspoe.memory import process_limits

        limits = process_limits()
        allowed = f" (this process may use {min(limits) >> 20} MB)" if limits else ""
        return f"out of memory{allowed}; {LOWER.get(command, 'close other programs, or raise the limit')}"
    return f"unexpected {type(error).__name__}: {text[:300]} (--debug shows where)"
