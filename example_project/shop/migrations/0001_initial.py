# ruff: noqa: RUF012  (what Django generates)
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="JobRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("jid", models.CharField(max_length=64, unique=True)),
                ("name", models.CharField(max_length=200)),
                ("queue", models.CharField(max_length=200)),
                (
                    "state",
                    models.CharField(choices=[("done", "Done"), ("failed", "Failed"), ("dead", "Dead")], max_length=10),
                ),
                ("attempts", models.PositiveIntegerField(default=1)),
                ("error", models.CharField(blank=True, max_length=200)),
                ("waited_s", models.FloatField(help_text="Seconds in the schedule before its first run")),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "ordering": ("-updated_at",),
            },
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("email", models.EmailField(max_length=254)),
                ("card_last4", models.CharField(max_length=4)),
                (
                    "status",
                    models.CharField(
                        choices=[("placed", "Placed"), ("paid", "Paid"), ("refused", "Refused")],
                        default="placed",
                        max_length=10,
                    ),
                ),
                ("placed_at", models.DateTimeField(auto_now_add=True)),
                ("receipt", models.FileField(blank=True, upload_to="receipts")),
                ("jobs", models.JSONField(blank=True, default=dict)),
            ],
            options={
                "ordering": ("-pk",),
            },
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, unique=True)),
                ("price_cents", models.PositiveIntegerField()),
                ("stock", models.PositiveIntegerField(default=0)),
                ("picture", models.FileField(blank=True, upload_to="products")),
                ("thumbnail", models.FileField(blank=True, upload_to="thumbnails")),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="Report",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(unique=True)),
                ("file", models.FileField(upload_to="reports")),
            ],
            options={
                "ordering": ("-day",),
            },
        ),
        migrations.CreateModel(
            name="OrderLine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("quantity", models.PositiveIntegerField(validators=[django.core.validators.MinValueValidator(1)])),
                ("price_cents", models.PositiveIntegerField()),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="lines", to="shop.order"
                    ),
                ),
                ("product", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="shop.product")),
            ],
        ),
    ]
