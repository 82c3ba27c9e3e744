"""The method: what is asked, in which orders, what comes of it. No backend is known here."""
