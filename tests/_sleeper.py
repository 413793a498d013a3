"""Functions that never end, for processes of their own; they import little."""

import subprocess
import sys
import time
from pathlib import Path


def sleep_with_a_child(request):
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    Path(request["path"]).write_text(str(child.pid))
    time.sleep(600)


def spin(request):
    while True:
        pass
