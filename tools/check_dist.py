"""
Check what installing slotgate does, each way of installing it in a fresh environment.

Twisted finds plugins by the folders of ``sys.path``, not by entry points, so a package that builds
and imports well can still be missing from ``twistd --help``. One line per claim, and exit status 1
when one of them is false. Run by ``make check-dist``; needs ``pip`` and ``build``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import venv
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

CHECKOUT = Path(__file__).resolve().parent.parent
PLUGIN = "twisted/plugins/slotgate_plugin.py"
#: What a checkout holds and a fresh clone does not.
NOT_SOURCE = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis",
    "dropin.cache", "_trial_temp*",
)  # fmt: skip

IMPORT_IS_QUIET = """
import sys, slotgate
found = [m for m in ("twisted.internet.reactor", "klein") if m in sys.modules]
sys.exit(f"import slotgate imports {found}" if found else 0)
"""
TWISTED_IS_INTACT = """
import importlib.util, twisted.plugins, twisted.web.server
from twisted.plugin import IPlugin, getPlugins
assert "web" in {getattr(p, "tapname", None) for p in getPlugins(IPlugin)}
found = importlib.util.find_spec("slotgate")
assert found is None, found
assert importlib.util.find_spec("twisted.plugins.slotgate_plugin") is None
"""


class Report:
    """
    The lines of the report, and whether one of them was a FAIL.
    """

    def __init__(self) -> None:
        self.failed = 0
        self._printing = threading.Lock()

    def claim(self, text: str, prove: Callable[[], object]) -> bool:
        """
        Print whether ``prove`` ran without an exception, and what the exception said.
        """
        try:
            prove()
        except Exception as error:
            with self._printing:
                self.failed += 1
                print(f"FAIL  {text}\n{_indent(str(error))}", flush=True)
            return False
        with self._printing:
            print(f"PASS  {text}", flush=True)
        return True


def _indent(text: str) -> str:
    return "\n".join(f"      | {line}" for line in text.strip().splitlines()[-20:])


Words: TypeAlias = Sequence[str]


def run(command: Words, cwd: Path) -> str:
    """
    Run a command and return what it printed.

    :raises RuntimeError: it ended with a status other than 0; the message is what it printed.
    """
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"$ {shlex.join(command)}\n{done.stdout}\nexit status {done.returncode}")
    return done.stdout


def expect(condition: object, otherwise: str) -> None:
    """
    Raise an AssertionError that says ``otherwise`` unless the condition holds.
    """
    if not condition:
        raise AssertionError(otherwise)


def source_files(checkout: Path, *folders: str) -> set[str]:
    """
    The Python files below the folders, relative to the checkout.
    """
    found = (path for folder in folders for path in (checkout / folder).rglob("*.py"))
    return {path.relative_to(checkout).as_posix() for path in found}


def check_archives(report: Report, checkout: Path, wheel: Path, sdist: Path) -> None:
    """
    Prove what lies in the two archives, by their lists of files.
    """
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    code = source_files(checkout, "slotgate")

    def no_foreign_files() -> None:
        tops = {name.split("/")[0] for name in in_wheel if ".dist-info/" not in name}
        expect(tops == {"slotgate", "twisted"}, f"top level of the wheel: {sorted(tops)}")

    def only_the_plugin() -> None:
        below = {name for name in in_wheel if name.startswith("twisted/")}
        expect(below == {PLUGIN}, f"below twisted/: {sorted(below)}")

    def whole() -> None:
        missing = (code | {"slotgate/py.typed"}) - in_wheel
        expect(not missing, f"not in the wheel: {sorted(missing)} (is its package in setup.cfg?)")

    report.claim(f"the wheel has {PLUGIN} and nothing else of twisted/", only_the_plugin)
    report.claim("the wheel has all of slotgate/ and py.typed", whole)
    report.claim("the wheel has slotgate and the plugin only, no tests", no_foreign_files)

    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}

    def sdist_whole() -> None:
        wanted = code | source_files(checkout, "tests", "tools", "benchmarks")
        wanted |= {PLUGIN, "Makefile", "LICENSE", "README.md", "pyproject.toml", "setup.cfg"}
        expect(wanted <= in_sdist, f"not in the sdist: {sorted(wanted - in_sdist)}")

    def sdist_clean() -> None:
        stray = {name for name in in_sdist if name.endswith(("dropin.cache", ".pyc"))}
        expect(not stray, f"in the sdist: {sorted(stray)}")

    report.claim("the sdist has the code, its tests and what make needs", sdist_whole)
    report.claim("the sdist has no dropin.cache and no .pyc", sdist_clean)


def check_install(report: Report, name: str, install: Words, where: Path, cwd: Path) -> None:
    """
    Install slotgate in an environment of its own, look at it, and uninstall it.

    :param name: the way of installing, as the report names it.
    :param install: the arguments of ``pip install``.
    :param where: the environment's folder, not there yet.
    :param cwd: a folder without any code, so that nothing is found by accident.
    """
    # One pip serves all the environments: ensurepip would cost seconds in each.
    venv.create(where, symlinks=True)
    python, twistd, slotgate = (str(where / "bin" / n) for n in ("python", "twistd", "slotgate"))
    pip = [sys.executable, "-m", "pip", "--python", python]

    def installs() -> None:
        run([*pip, "install", "--quiet", "--no-compile", *install], cwd)

    def listed(command: Words) -> None:
        shown = run([*command, "--help"], cwd)
        expect("\n    slotgate " in shown, shown)

    def uninstalls() -> None:
        run([*pip, "uninstall", "--quiet", "--yes", "slotgate"], cwd)
        run([python, "-c", TWISTED_IS_INTACT], cwd)
        shown = run([twistd, "--help"], cwd)
        expect("slotgate" not in shown, shown)

    def demo_says_what_is_missing() -> None:
        try:
            shown = run([slotgate, "demo", "--exit"], cwd)
        except RuntimeError as error:
            expect("slotgate[demo]" in str(error) and "Traceback" not in str(error), str(error))
        else:
            raise AssertionError(f"it ran without xllamacpp:\n{shown}")

    if not report.claim(f"{name}: installs", installs):
        return
    report.claim(f"{name}: twistd --help lists slotgate", lambda: listed([twistd]))
    twist = [python, "-m", "twisted"]
    report.claim(f"{name}: python -m twisted --help lists slotgate", lambda: listed(twist))
    quiet = [python, "-c", IMPORT_IS_QUIET]
    report.claim(f"{name}: import slotgate installs no reactor, no klein", lambda: run(quiet, cwd))
    own = [twistd, "slotgate", "--help"]
    report.claim(f"{name}: twistd slotgate --help runs", lambda: run(own, cwd))
    no_demo = "slotgate demo without its extra names the command to install it"
    report.claim(f"{name}: {no_demo}", demo_says_what_is_missing)
    report.claim(f"{name}: uninstalling it leaves twisted intact", uninstalls)


def main() -> int:
    """
    Build, install in four ways, and report; the exit status.
    """
    started = time.monotonic()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="slotgate-dist-") as name:
        room = Path(name)
        # Builds leave files in the tree, and an old build/ would leak into the wheel.
        checkout = room / "checkout"
        shutil.copytree(CHECKOUT, checkout, ignore=NOT_SOURCE)
        editable = room / "editable"
        shutil.copytree(checkout, editable)
        (empty := room / "empty").mkdir()

        # The wheel is built from the sdist, as an installer without wheels would.
        build = [sys.executable, "-m", "build", "--outdir", str(room / "dist"), str(checkout)]
        if not report.claim("wheel and sdist build", lambda: run(build, empty)):
            return 1
        (wheel,) = (room / "dist").glob("*.whl")
        (sdist,) = (room / "dist").glob("*.tar.gz")
        check_archives(report, checkout, wheel, sdist)

        ways = {
            "pip install .": [str(checkout)],
            "pip install -e .": ["-e", str(editable)],
            "from the wheel": [str(wheel)],
            "from the sdist": [str(sdist)],
        }
        with ThreadPoolExecutor(2) as pool:
            runs = [
                pool.submit(check_install, report, way, arguments, room / f"venv-{n}", empty)
                for n, (way, arguments) in enumerate(ways.items())
            ]
        for done in runs:
            done.result()
    print(f"{report.failed} failed, {time.monotonic() - started:.0f} s")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
