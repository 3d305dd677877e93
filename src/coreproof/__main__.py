"""`python -m coreproof` is the `coreproof` command."""

from __future__ import annotations

from .cli import main

raise SystemExit(main())
