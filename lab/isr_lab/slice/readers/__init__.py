"""One reader per source: what lies in a raw folder becomes records, and everything refused is accounted for."""
