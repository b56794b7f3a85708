"""`python -m benchmark.faults.confined MODULE ARGS…`: as an ordinary user would run it, also where root does.

Root may write into any folder. Without CAP_DAC_OVERRIDE, which is dropped here, a folder without write permission is
closed to it as to anybody else.
"""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["main"]

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def main() -> None:
    """Drop the right, and become the module."""
    if os.geteuid() == 0:
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if ctypes.CDLL(None, use_errno=True).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
                sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    os.execv(sys.executable, [sys.executable, "-m", *sys.argv[1:]])


if __name__ == "__main__":
    main()
