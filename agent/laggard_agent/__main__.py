"""`python -m laggard_agent`."""

import sys

from laggard_agent.cli import main

sys.exit(main())
