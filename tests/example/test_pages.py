"""Every page of the example project renders, with the host's overrides and without them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest

from tests.example.conftest import CHECKOUT, Clone, Shop
from tests.support.servers import RedisServer

pytestmark = pytest.mark.xdist_group("example")

PAGES = ["/", "/orders/1/", "/reports/", "/activity/"]
FILES = {
    "/orders/1/receipt.pdf": b"%PDF-",
    "/products/1/picture.png": b"\x89PNG",
    "/products/1/thumbnail.png": b"\x89PNG",
    "/reports/1.csv": b"product,",
}
MODELS = ["product", "order", "report", "jobrecord"]
ADMIN = ["/admin/", *(f"/admin/shop/{model}/{page}" for model in MODELS for page in ("", "add/", "1/change/"))]
CONTENT = """
import django; django.setup()
from django.core.management import call_command
from example_project.shop import jobs, orders
order = orders.place("eve@example.com", "4242", {1: 1})
jobs.send_receipt(order.pk), jobs.make_thumbnail(1), jobs.report_sales(order.placed_at.date().isoformat())
"""


@pytest.fixture(scope="module", params=["with overrides", "without overrides"])
def shop(
    request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """A shop that has one of everything, with the host's templates and files or with the apps' own alone."""
    clone = Clone(tmp_path_factory.mktemp("clone"), redis_server.url)
    if request.param == "without overrides":
        for name in ("templates", "static"):
            shutil.rmtree(clone.path / name)
            (clone.path / name).mkdir()
    shop = Shop(clone)
    done = clone.python("-c", CONTENT)
    assert done.returncode == 0, done.stderr
    clone.work()
    yield shop
    shop.close()


@pytest.fixture
def overridden(shop: Shop) -> bool:
    return any((shop.clone.path / "templates").iterdir())


def test_every_page_of_the_shop_is_named_here() -> None:
    urls = (CHECKOUT / "example_project" / "shop" / "urls.py").read_text()
    patterns = [re.sub(r"<int:\w+>", "1", found) for found in re.findall(r'path\("([^"]*)"', urls)]
    assert {f"/{pattern}" for pattern in patterns} == {*PAGES, *FILES, "/orders/"}


def test_every_page_and_file_is_there(shop: Shop) -> None:
    browser = shop.browser()
    for path in PAGES:
        page = browser.get(path)
        assert (path, page.status, "</html>" in page.text) == (path, 200, True)
    for path, start in FILES.items():
        answer = browser.get(path)
        assert (path, answer.status, answer.body[: len(start)]) == (path, 200, start)


def test_every_page_of_the_admin_is_there(shop: Shop) -> None:
    keeper = shop.keeper()
    for path in ADMIN:
        page = keeper.get(path)
        assert (path, page.status, page.url) == (path, 200, shop.root.rstrip("/") + path)


def test_an_override_of_a_template_wins(shop: Shop, overridden: bool) -> None:
    assert ("The Example Shop, behind the counter" in shop.keeper().get("/admin/").text) is overridden


def test_an_override_of_a_file_wins(shop: Shop, overridden: bool) -> None:
    found = shop.browser().get("/static/shop/theme.css").text
    here = CHECKOUT if overridden else CHECKOUT / "example_project" / "shop"
    assert found == (here / "static" / "shop" / "theme.css").read_text()


def test_pages_name_files_that_are_served(shop: Shop) -> None:
    browser = shop.browser()
    addresses = re.findall(r'(?:href|src)="(/static/[^"]+)"', browser.get("/").text)
    assert addresses
    assert [browser.get(address).status for address in addresses] == [200] * len(addresses)


def test_django_finds_nothing_to_say_about_the_project(shop: Shop) -> None:
    done = shop.clone.python("-W", "error", "-m", "django", "check")
    assert done.returncode == 0, done.stderr
    assert "no issues (0 silenced)" in done.stdout
    assert shop.clone.python("manage.py", "makemigrations", "--check", "--dry-run").returncode == 0
