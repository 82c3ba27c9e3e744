"""`python -m isr_rag` is the command `isr-rag`."""

from isr_rag.cli import main

if __name__ == "__main__":
    main()
