"""Makes the helpers beside this folder importable, also when this folder is run alone."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
