"""The payment provider, played by a few test cards as real providers have them."""

from __future__ import annotations

DECLINED = "0002"
BUSY_AT_FIRST = "0119"


class ProviderBusy(Exception):
    """The provider did not answer; it may in a second."""


class CardDeclined(Exception):
    """The bank said no; asking again changes nothing."""


def charge(card_last4: str, cents: int, attempt: int) -> None:
    """Take the money. Raises ProviderBusy or CardDeclined."""
    if card_last4 == DECLINED:
        raise CardDeclined(f"the card ending in {card_last4} was declined for {cents / 100:.2f}")
    if card_last4 == BUSY_AT_FIRST and attempt == 1:
        raise ProviderBusy("no answer from the payment provider")
