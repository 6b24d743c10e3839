"""The older name of what a script can tell `tonnage run`: `tonnage.log`, `tonnage.lease` and the others. Under `tonnage run` the
program's own copy goes before this one."""

from tonnage._guard import *  # noqa: F403
