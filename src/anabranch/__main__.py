"""``python -m anabranch``: the command, where it is not on the path."""

from anabranch.cli import main

if __name__ == "__main__":
    main()
