"""The example shop: its pages, its orders and the jobs that they start, through the browser and a real worker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from email import message_from_bytes
from email.policy import default
from typing import Any

import pytest
import redis as redis_py

from tests.example.conftest import Answer, Shop

pytestmark = pytest.mark.xdist_group("example")  # one shop serves them all

Payloads = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def payloads(redis: redis_py.Redis) -> Payloads:
    """What waits on a queue, or in a sorted set."""

    def read(key: str) -> list[dict[str, Any]]:
        kind = redis.type(key)
        raws = {b"list": lambda: redis.lrange(key, 0, -1), b"zset": lambda: redis.zrange(key, 0, -1)}.get(kind)
        return [json.loads(raw) for raw in raws()] if raws else []

    return read


def order(shop: Shop, card: str = "4242", pieces: int = 1) -> Answer:
    return shop.browser().post(
        "/orders/", form_on="/", email="eve@example.com", card_last4=card, **{"quantity-1": pieces, "quantity-2": 1}
    )


def jids_on(page: Answer) -> set[str]:
    return set(re.findall(r"<code>(\w{24})</code>", page.text))


def test_an_order_starts_its_jobs_and_shows_their_jids(shop: Shop, redis: redis_py.Redis, payloads: Payloads) -> None:
    page = order(shop)
    assert (page.status, "Order" in page.text) == (200, True)
    sent = {payload["jid"] for key in ("queue:critical", "queue:mail", "schedule") for payload in payloads(key)}
    assert jids_on(page) == sent
    assert len(sent) == 3
    assert page.text.count("waiting") == 3


def test_an_order_that_cannot_be_filled_starts_no_job(shop: Shop, redis: redis_py.Redis) -> None:
    # given: the jobs are enqueued before the shop finds that a product has run out
    page = order(shop, pieces=9999)
    assert page.status == 409
    assert "There are not 9999 of" in page.text
    assert redis.keys("*") == []


@pytest.mark.parametrize(
    "wrong", [{"email": "nobody"}, {"card_last4": "42"}, {"quantity-1": 0}, {"quantity-1": -1}, {"quantity-1": "x"}]
)
def test_a_wrong_form_comes_back_and_starts_no_job(wrong: dict[str, Any], shop: Shop, redis: redis_py.Redis) -> None:
    fields = {"email": "eve@example.com", "card_last4": "4242", "quantity-1": 1, **wrong}
    assert shop.browser().post("/orders/", form_on="/", **fields).status == 400
    assert redis.keys("*") == []


def test_the_worker_charges_mails_and_draws(shop: Shop, redis: redis_py.Redis) -> None:
    # given
    page = order(shop)
    address = page.url.removeprefix(shop.root)
    shop.keeper().post("/admin/shop/product/", action="make_thumbnails", _selected_action="1")
    assert redis.llen("queue:documents") == 1
    # when
    shop.clone.work()
    # then
    page = shop.browser().get(address)
    assert "Paid" in page.text
    receipt = shop.browser().get(f"{address}receipt.pdf")
    assert (receipt.status, receipt.body[:5]) == (200, b"%PDF-")
    assert shop.browser().get("/products/1/thumbnail.png").body.startswith(b"\x89PNG")
    mails = [message_from_bytes(file.read_bytes(), policy=default) for file in mail_files(shop)]
    assert any(
        [part.get_content() == receipt.body for part in mail.iter_attachments()] == [True]
        for mail in mails
        if mail["To"] == "eve@example.com"
    )


def mail_files(shop: Shop) -> list[Any]:
    return list((shop.clone.path / "example_project" / "var" / "mail").iterdir())


@pytest.mark.parametrize(("card", "status", "waits_in"), [("0002", "Refused", "dead"), ("0119", "Placed", "retry")])
def test_a_card_that_does_not_pay_shows_where_its_job_is(
    card: str, status: str, waits_in: str, shop: Shop, payloads: Payloads
) -> None:
    page = order(shop, card=card)
    shop.clone.work()
    assert status in shop.browser().get(page.url).text
    ((kept,)) = payloads(waits_in)
    assert kept["class"] == "example_project.shop.jobs.ChargeCard"
    assert kept["jid"] in jids_on(page)


def test_a_report_is_asked_for_written_and_read(shop: Shop, redis: redis_py.Redis) -> None:
    order(shop)
    page = shop.browser().post("/reports/")
    assert redis.llen("queue:documents") == 1
    shop.clone.work()
    page = shop.browser().get("/reports/")
    (address,) = re.findall(r'href="(/reports/\d+\.csv)"', page.text)
    report = shop.browser().get(address)
    assert report.text.splitlines()[0] == "product,pieces,amount"
    assert re.search(r"^Lantern,\d+,\d+\.\d\d$", report.text.replace("\r", ""), re.MULTILINE)


def test_receipts_are_sent_again_from_the_admin(shop: Shop, redis: redis_py.Redis, payloads: Payloads) -> None:
    number = order(shop).url.rstrip("/").rpartition("/")[2]
    redis.flushall()
    shop.keeper().post("/admin/shop/order/", action="send_receipts", _selected_action=number)
    assert [payload["args"] for payload in payloads("queue:mail")] == [[int(number)]]


@pytest.mark.parametrize("path", ["/admin/shop/order/", "/admin/shop/product/"])
def test_the_admin_is_not_for_visitors(path: str, shop: Shop) -> None:
    assert "/admin/login/" in shop.browser().get(path).url
