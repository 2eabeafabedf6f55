"""The inspector's page in Debian's Chromium, through Playwright: the checks of `make test-ui`, and the pictures.

Playwright lives in an environment of its own (tests/real/requirements/ui.txt), axe-core and TypeScript in `node/`.
"""
