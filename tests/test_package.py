"""
What importing and packaging promise, as far as a checkout can show it; ``make check-dist`` shows
the rest from real installations.
"""

from __future__ import annotations

import configparser
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import slotgate

CHECKOUT = Path(__file__).resolve().parent.parent


def modules_after(statement: str) -> set[str]:
    """
    What a fresh interpreter has imported after the statement.
    """
    program = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_public_names_are_these() -> None:
    assert set(slotgate.__all__) == {"Config", "ConfigError", "__version__", "load_config"}


def test_each_public_name_is_there_and_nothing_else_is_public() -> None:
    own_modules = {name for name in vars(slotgate) if f"slotgate.{name}" in sys.modules}
    public = {name for name in vars(slotgate) if not name.startswith("_")} - own_modules
    assert public | {"__version__"} == set(slotgate.__all__)


def test_importing_slotgate_installs_no_reactor_and_imports_no_klein() -> None:
    imported = modules_after("import slotgate")
    assert "slotgate.config" in imported
    assert not imported & {"twisted.internet.reactor", "klein"}


def test_importing_the_plugin_loads_none_of_slotgate() -> None:
    # twistd imports each plugin it finds, for every command of everybody.
    imported = modules_after("import twisted.plugins.slotgate_plugin")
    assert "twisted.application.service" in imported
    assert not {name for name in imported if name.split(".")[0] in ("slotgate", "klein")}
    assert "twisted.internet.reactor" not in imported


def test_the_plugin_keeps_the_name_of_its_attribute() -> None:
    # A renamed attribute breaks installations with a dropin.cache that is newer than the file.
    plugin = importlib.import_module("twisted.plugins.slotgate_plugin")
    assert plugin.serviceMaker.tapname == "slotgate"
    assert plugin.serviceMaker.module == "slotgate.tap"


def test_each_package_folder_is_listed_in_setup_cfg() -> None:
    # The list is explicit, so a forgotten package would be missing from the wheel.
    settings = configparser.ConfigParser()
    settings.read(CHECKOUT / "setup.cfg")
    listed = set(settings["options"]["packages"].split())
    folders = {path.parent for path in (CHECKOUT / "slotgate").rglob("*.py")}
    there = {".".join(folder.relative_to(CHECKOUT).parts) for folder in folders}
    assert listed == there | {"twisted.plugins"}


def test_twisted_stays_a_package_of_others() -> None:
    assert not list((CHECKOUT / "twisted").rglob("__init__.py"))


def test_each_runtime_dependency_says_why_it_needs_that_release() -> None:
    text = (CHECKOUT / "pyproject.toml").read_text()
    for requirement in tomllib.loads(text)["project"]["dependencies"]:
        assert ">=" in requirement, requirement
        assert re.search(rf'^ *"{re.escape(requirement)}", *# \w+', text, re.M), requirement


def test_the_makefile_and_the_demo_name_the_same_model_package() -> None:
    from slotgate.demo.command import MODEL_PACKAGE

    assert f"DEMO_MODEL := {MODEL_PACKAGE}\n" in (CHECKOUT / "Makefile").read_text()
