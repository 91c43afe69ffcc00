"""How the threads that share torch's work wait for each other."""

import os
import sys


def wait_asleep() -> None:
    """Let threads that have done their part look for more work for some microseconds, and then sleep.

    GNU's OpenMP, which torch computes with, lets them look for milliseconds: on the very core that the thread
    they wait for needs, where other programs run. On two cores with two other programs, a step of training
    took 970 to 5,600 ms, and 350 so; on two quiet cores it takes 115 ms either way. The library reads
    this once, when torch is imported; whoever has chosen (`OMP_WAIT_POLICY`, `GOMP_SPINCOUNT`) keeps it.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
