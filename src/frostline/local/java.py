"""Find a Java that can run Spark. Standard library only: set-up asks before anything is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from frostline.errors import SetupError

# Spark 4 is compiled for 17.
MINIMUM = 17


def require_java() -> Path:
    """The Java of JAVA_HOME, or else of PATH; an error when there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise SetupError(
                f"JAVA_HOME is {home}, but there is no Java in it (no bin/java)",
                hint=f"point JAVA_HOME at a Java {MINIMUM} or newer, or unset it to use the Java on the PATH",
            )
    else:
        found = shutil.which("java")
        if found is None:
            raise SetupError(
                f"Frostline needs Java {MINIMUM} or newer for Spark, and there is no java on the PATH",
                hint="install one (Debian and Ubuntu: openjdk-17-jre-headless), or set JAVA_HOME",
            )
        java = Path(found)
    version = _version(java)
    if version < MINIMUM:
        raise SetupError(
            f"Frostline needs Java {MINIMUM} or newer for Spark, and {java} is Java {version}",
            hint=f"install Java {MINIMUM}, or point JAVA_HOME at one",
        )
    return java


def _version(java: Path) -> int:
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{java} cannot be run: {error}", hint="point JAVA_HOME at a working Java") from None
    # `version "17.0.15"`, or `version "1.8.0_392"` before 9.
    match = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    if match is None:
        raise SetupError(f"{java} -version does not say its version", hint="point JAVA_HOME at a working Java")
    return int(match.group(1))


if __name__ == "__main__":
    try:
        require_java()
    except SetupError as missing:
        sys.exit(f"error: {missing}")
