"""Load or compile the kernels of dumps before a client connects.

`dispatcher.stream.warmup` does the same for the kernels that read the log. The daemon passes `load_dump_kernels`
to `dispatcher.runtime.kernels` if it has a front.
"""

from __future__ import annotations

import numpy as np

from dispatcher.front.dump import fill_kernel, relay_kernel
from dispatcher.front.dump.fill import template_of
from dispatcher.front.dump.made_events import MadeTransaction
from dispatcher.front.dump.sent_gtids import address


def load_dump_kernels() -> None:
    """Run each kernel once with empty input. This call compiles the kernel, because compilation depends only on the
    types of the arguments."""
    st = np.zeros(relay_kernel.STATE_SIZE, dtype=np.int64)
    nothing = np.zeros(1, dtype=np.uint8)
    st[relay_kernel.OUT_AT] = st[relay_kernel.NAME_AT] = address(nothing)
    relay_kernel.relay(address(st), address(nothing), 0)
    relay_kernel.is_dropped(st, 0, 0)
    relay_kernel.has_no_place(st, 0, 0)
    relay_kernel.full_offset(st, 0)
    relay_kernel.count_event(st, 0, 0)
    none = np.empty(0, dtype=np.int64)
    made = MadeTransaction("", 0, 0, 0, checksum=False)
    template = template_of(made.mariadb(0, 0), made, b"")
    fill_kernel.fill(nothing, 0, template, none, none, np.zeros(fill_kernel.STATE_SIZE, np.int64))
