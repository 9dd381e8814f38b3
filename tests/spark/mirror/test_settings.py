"""The settings of the mirror: files, environment, command line, and what is wrong in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dispatcher.model.errors import UserError
from dispatcher.mysql.server_address import secret_of_options
from dispatcher.yaml_settings.validation import SettingsError
from spark_sink.mirror.assembly import iceberg_options
from spark_sink.mirror.session import _standalone
from spark_sink.mirror.values.settings import MirroredConsumer, MirrorSettings, load_mirror_settings
from spark_sink.source.options import SourceOptions

ROOT = Path(__file__).parents[3]
JOB = "url: http://127.0.0.1:8085\nconsumers: [shop]\ntarget: /t\n"
Load = Callable[..., MirrorSettings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(
        text: str = JOB, environment: Mapping[str, str] | None = None, **options: Any
    ) -> MirrorSettings:
        file = tmp_path / "mirror.yaml"
        file.write_text(text)
        overrides = {key: (f"--{key}", value) for key, value in options.items()}
        return load_mirror_settings([file], overrides, environment or {})

    return load


def test_the_command_line_overrides_the_environment_and_that_the_file(load: Load) -> None:
    text = JOB + "max_partitions: 2\nparallel_tables: 3\nlog_days: 1\n"
    environment = {"SPARK_SINK_PARALLEL_TABLES": "4", "SPARK_SINK_LOG_DAYS": "5", "OTHER": "x"}
    settings = load(text, environment, log_days="6")
    assert (settings.max_partitions, settings.parallel_tables, settings.log_days) == (2, 4, 6)


def test_the_source_gets_its_options(load: Load) -> None:
    environment = {"SPARK_SINK_TOKEN": "the-token", "SPARK_SINK_MAX_BYTES_PER_TRIGGER": "8MiB"}
    settings = load(JOB, environment)
    options = settings.source_options("shop")
    assert (options["token"], options["maxBytesPerTrigger"]) == ("the-token", str(8 << 20))
    assert SourceOptions.parse(options).raw
    assert "the-token" not in repr(settings)


def test_a_token_file_wins_over_a_token(load: Load) -> None:
    options = load(JOB + "token: secret\ntoken_file: /run/token\n").source_options("shop")
    assert options["tokenFile"] == "/run/token" and "token" not in options


def test_the_addresses_of_several_daemons_are_passed_to_the_source(load: Load) -> None:
    several = "https://a:8085,https://b:8085"
    settings = load(f"url: {several}\nconsumers: [shop]\ntarget: /t\n")
    options = SourceOptions.parse(settings.source_options("shop"))
    assert [address.text for address in options.address.addresses] == several.split(",")


def test_a_password_is_read_from_its_file_and_not_shown(load: Load, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("geheim\n")
    settings = load(JOB + "copy: {mysql: u@h:1, password_file: secret}\n")
    assert settings.copy_from is not None and settings.copy_from.secret == "geheim"
    assert "geheim" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("{}", "mirror.yaml:1: url: is missing"),
        (JOB + "sink: 1\n", "mirror.yaml:4: sink: unknown key"),
        (JOB + "log_day: 1\n", "did you mean 'log_days'?"),
        (
            JOB + "mask: {shop.a.b: null}\n",
            "mirror.yaml:4: mask: unknown key; write it below a name: {tables: {NAME: {mask: ...}}}",
        ),
        (JOB + "mysql: u@h\n", "mirror.yaml:4: mysql: unknown key; set it in copy"),
        (
            JOB + "exclude: [a.b]\n",
            "mirror.yaml:4: exclude: unknown key; write it below a name: {consumers: {NAME: {exclude: ...}}}",
        ),
        (JOB + "log_days: 1\nlog_days: 2\n", "duplicate key, already set in line 4"),
        (JOB.replace("http", "ftp"), "mirror.yaml:1: url: not the address of a daemon"),
        (JOB.replace("http", "https://a, http"), "url: some addresses begin with http://"),
        (JOB.replace("[shop]", "[a, b, a]"), "a consumer is named twice"),
        (JOB.replace("[shop]", "[]"), "mirror.yaml:2: consumers"),
        (JOB + "trigger_interval: 2\n", "mirror.yaml:4: trigger_interval"),
        (JOB + "trigger_interval: '2'\n", "write it like '500 ms'"),
        (JOB + "max_bytes_per_trigger: x\n", "max_bytes_per_trigger: expected a number of bytes"),
        (JOB + "parallel_tables: 0\n", "mirror.yaml:4: parallel_tables"),
        (JOB + "max_partitions: 255\n", "mirror.yaml:4: max_partitions"),
        (JOB + "copy: {mysql: u@h}\n", "set either password_file or password"),
        (JOB + "copy: {mysql: u@h, password: a, password_file: b}\n", "cannot read the file"),
        (JOB + "tables: {shop: {deletes: soft}}\n", "write it like database.table"),
        (JOB + "tables: {shop.a: {deletes: no}}\n", "mirror.yaml:4: tables.shop.a.deletes"),
        (JOB + "spark: {conf: [x]}\n", "write it like spark.x=1"),
        (JOB + "spark: {driver_memory: 2}\n", "mirror.yaml:4: spark.driver_memory"),
    ],
)
def test_findings_name_file_line_and_key(load: Load, text: str, finding: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text)
    assert finding in str(caught.value)


def test_all_findings_are_reported_at_once(load: Load) -> None:
    with pytest.raises(SettingsError) as caught:
        load("url: nowhere\nconsumers: [a]\nlog_days: -1\n")
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert all(any(key in line for line in lines) for key in ("url:", "target:", "log_days:"))


def test_of_each_policy_the_first_pattern_that_sets_it_counts(load: Load) -> None:
    text = JOB + (
        "tables:\n"
        "  shop.orders: {deletes: soft}\n"
        "  shop.*: {deletes: hard, on_alter: stop}\n"
        "  '*.*': {on_alter: recopy, seconds_between_steps: 5}\n"
    )
    settings = load(text)
    orders, other = settings.policy(("shop", "orders")), settings.policy(("d", "t"))
    assert (orders.deletes, orders.on_alter, orders.seconds_between_steps) == ("soft", "stop", 5)
    assert (other.deletes, other.on_alter, other.seconds_between_steps) == (None, "recopy", 5)


@pytest.mark.parametrize(
    ("include", "exclude", "name", "excluded"),
    [
        (("*",), (), "a.b", False),
        (("shop.*",), (), "shop.x", False),
        (("shop.*",), (), "shop2.x", True),
        (("*",), ("shop.tmp_*",), "shop.tmp_1", True),
        (("*",), ("shop.tmp_*",), "shop.Tmp_1", False),
    ],
)
def test_patterns_choose_tables(
    include: tuple[str, ...], exclude: tuple[str, ...], name: str, excluded: bool
) -> None:
    database, table = name.split(".")
    consumer = MirroredConsumer(include=include, exclude=exclude)
    assert consumer.excludes((database, table)) is excluded


def test_a_consumers_patterns_decide_for_itself_only(load: Load) -> None:
    settings = load(JOB.replace("[shop]", "{shop: {exclude: [shop.tmp_*]}, billing: }"))
    assert settings.excludes("shop", ("shop", "tmp_x"))
    assert not settings.excludes("billing", ("shop", "tmp_x"))


def test_a_consumer_that_the_settings_lack_leaves_out_nothing(load: Load) -> None:
    assert not load().excludes("former", ("shop", "orders"))


def test_a_template_of_names_in_a_catalog_is_checked(load: Load) -> None:
    assert load(JOB + 'catalog: "{database}.{table}"\n').catalog == "{database}.{table}"
    with pytest.raises(SettingsError, match=r"mirror\.yaml.*catalog: write it like"):
        load(JOB + "catalog: raw.orders\n")


ICEBERG = """iceberg:
  catalog: {type: rest, uri: "https://catalog", credential: "a:${SECRET}"}
"""


def test_an_iceberg_catalog_has_properties_of_pyiceberg_and_names_of_two_parts(load: Load) -> None:
    catalog = 'catalog: "{database}.{table}"\n'
    settings = load(JOB + catalog + ICEBERG, {"SECRET": "s"})
    options = iceberg_options(settings)
    assert options is not None
    assert options.catalog == {"type": "rest", "uri": "https://catalog", "credential": "a:s"}
    assert (options.interval_s, options.snapshot_hours) == (60, 24)
    assert "a:s" not in repr(settings) + repr(options)
    assert iceberg_options(load(JOB + catalog)) is None
    with pytest.raises(SettingsError, match=r"set catalog to \{database\}\.\{table\}"):
        load(JOB + ICEBERG, {"SECRET": "s"})
    with pytest.raises(SettingsError, match="catalog has two names"):
        load(JOB + 'catalog: "main.{database}.{table}"\n' + ICEBERG, {"SECRET": "s"})


def test_the_example_shows_all_keys() -> None:
    file = ROOT / "config" / "mirror.example.yaml"
    settings = load_mirror_settings([file], {}, {"COPY_PASSWORD": "x"})
    shown = set(settings.model_fields_set)
    shown |= {"token", "ca_file", "max_bytes_per_trigger", "catalog", "iceberg", "page"}
    shown |= {"mask_secret", "mask_secret_file"}
    assert shown == set(MirrorSettings.model_fields)
    assert settings.copy_from is not None
    optional = {"password_file", "ca_file"}
    assert settings.copy_from.model_fields_set | optional == set(
        type(settings.copy_from).model_fields
    )


NAMED = """url: http://127.0.0.1:8085
consumers:
  shop: {include: ["Shop.*"], exclude: [SHOP.Secret]}
  other: {}
target: /t
tables:
  Shop.Orders: {omit_columns: [a]}
  "shop.*": {deletes: soft, omit_columns: [b]}
  SHOP.ORDERS: {omit_columns: [c], history: true}
"""


def test_names_in_upper_case_mean_the_tables_of_a_server_that_folds_names(load: Load) -> None:
    exact = load(NAMED)
    assert exact.names_in_upper_case() == ["Shop.Orders", "SHOP.ORDERS", "Shop.*", "SHOP.Secret"]
    assert load(JOB).names_in_upper_case() == []
    for value in (1, 2):
        folded = exact.with_server_names({"shop": value, "other": value})
        assert not folded.excludes("shop", ("shop", "orders"))
        assert folded.excludes("shop", ("shop", "secret"))
        assert folded.table_policy(("shop", "orders")).omitted == ("a",)
        assert folded.policy(("shop", "orders")).history is True
        assert folded.policy(("shop", "orders")).deletes == "soft"
        assert folded.names_in_upper_case() == []
    same = exact.with_server_names({"shop": 0, "other": 0})
    assert same.excludes("shop", ("shop", "orders"))
    assert same.excludes("shop", ("SHOP", "Secret"))
    assert same.table_policy(("shop", "orders")).omitted == ("b",)
    assert same.table_policy(("Shop", "Orders")).omitted == ("a",)


def test_a_pattern_of_a_table_has_one_meaning(load: Load) -> None:
    with pytest.raises(UserError, match="on the server of one consumer only") as refused:
        load(NAMED).with_server_names({"shop": 1, "other": 0})
    assert "two jobs" in refused.value.remedy
    of_consumers = NAMED.partition("tables:")[0]
    settings = load(of_consumers).with_server_names({"shop": 1, "other": 0})
    assert settings.excludes("shop", ("shop", "secret"))


def masked(**more: Any) -> MirrorSettings:
    tables = {"shop.users": {"mask": {"id": "keyed", "mail": "sha256", "note": None}}}
    given = {"url": "http://127.0.0.1:1", "consumers": ["shop"], "target": "/t", "tables": tables}
    return MirrorSettings.model_validate(given | more)


def test_masks_have_the_secret_and_do_not_show_it() -> None:
    settings = masked(mask_secret="a secret of the mirror")
    policy = settings.table_policy(("shop", "users"))
    found = {name: (mask.form.value, mask.secret) for name, mask in policy.masks}
    assert found == {
        "id": ("keyed", b"a secret of the mirror"),
        "mail": ("sha256", b""),
        "note": ("null", b""),
    }
    assert "a secret" not in f"{policy!r} {settings!r}"


def test_one_file_gives_the_mirror_and_read_one_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(" a secret of the mirror \n", encoding="utf-8")
    masks = dict(masked(mask_secret_file=str(file)).table_policy(("shop", "users")).masks)
    secret = secret_of_options("mask-secret", file, None)
    assert masks["id"].secret.decode() == secret == " a secret of the mirror "


@pytest.mark.parametrize("more", [{}, {"mask_secret": "short"}])
def test_keyed_masks_need_a_secret(more: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="16 characters"):
        masked(**more)


def test_the_log_settings_of_java_are_a_file() -> None:
    values = {"url": "http://127.0.0.1:8085", "target": "/t", "consumers": ["shop"]}
    given = _standalone(MirrorSettings.model_validate(values))
    url = given["spark.driver.extraJavaOptions"].partition("log4j2.configurationFile=file://")[2]
    assert Path(url).is_file()
