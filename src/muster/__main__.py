"""`python -m muster` is the command `muster`."""

import sys

from muster.cli.main import main

sys.exit(main())
