"""Pairs of statements that any careful reader tells apart; never trained on."""
