"""What a visitor may send."""

from __future__ import annotations

import re

from django import forms
from django.core.exceptions import ValidationError

from .models import Product

_FIELD = re.compile(r"quantity-(\d{1,9})")
_PIECES = re.compile(r"[1-9]\d{0,3}")


class OrderForm(forms.Form):
    """Who orders and who pays; the quantities are fields `quantity-<product id>` beside it."""

    email = forms.EmailField(initial="visitor@example.com")
    card_last4 = forms.RegexField(r"^\d{4}$", initial="4242", label="Card, last four digits")

    def quantities(self) -> dict[int, int]:
        """Pieces by product id, those asked for only."""
        given = ((_FIELD.fullmatch(name), value) for name, value in self.data.items())
        return {int(field[1]): int(pieces) for field, pieces in given if field and _PIECES.fullmatch(pieces)}

    def clean(self) -> None:
        super().clean()
        if not Product.objects.filter(pk__in=self.quantities()).exists():
            raise ValidationError("Choose at least one product.")
