"""``python -m logforensics`` is the same program as ``logforensics``."""

from logforensics.cli import main

if __name__ == "__main__":
    main()
