"""Tables: of typed values, of text for people, and of several runs side by side."""
