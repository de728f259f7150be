"""`python -m redisched`: the same as `redisched`."""

import sys

from redisched.cli import main

if __name__ == "__main__":
    sys.exit(main())
