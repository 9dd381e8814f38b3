"""The table of services: which service runs a server, and that a finding names what is to be done there.

The variables are those that users of each service have shown in public: outputs of SHOW VARIABLES, greetings of clients
and headers of dumps. The pages under docs/servers/ name the sources.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.mysql.grants import parse_grants
from dispatcher.mysql.server_settings import findings
from dispatcher.mysql.services import OWN, SERVICES, service_of
from tests.mysql.test_server_facts import WHOLE

DOCS = Path(__file__).parents[2] / "docs/servers"
GRANTS = parse_grants(["GRANT ALL PRIVILEGES ON *.* TO `root`@`%`"])
BY_NAME = {service.name: service for service in SERVICES}

RECORDED: dict[str, list[dict[str, str]]] = {
    "Amazon Aurora MySQL": [
        {
            "version": "8.0.28",
            "version_comment": "Source distribution",
            "aurora_version": "3.04.0",
            "basedir": "/rdsdbbin/oscar-8.0.mysql_aurora.3.04.0.0.28600.0/",
        },
        {"version": "5.7.12", "aurora_version": "2.09.0", "basedir": "/rdsdbbin/oscar/"},
        {"version": "5.6.10", "basedir": "/rdsdbbin/oscar-5.6.10a.200340.0/"},
    ],
    "Amazon RDS for MySQL": [
        {"version": "5.7.18-log", "basedir": "/rdsdbbin/mysql-5.7.18/"},
        {
            "version": "8.0.35",
            "version_comment": "Source distribution",
            "basedir": "/rdsdbbin/mysql/",
        },
    ],
    "Amazon RDS for MariaDB": [
        {
            "version": "10.6.14-MariaDB",
            "version_comment": "managed by https://aws.amazon.com/rds/",
            "basedir": "/rdsdbbin/mariadb-10.6.14.R1/",
            "wsrep_on": "0",
        },
        {
            "version": "11.4.4-MariaDB-log",
            "version_comment": "managed by https://aws.amazon.com/rds/",
        },
    ],
    "Azure Database for MySQL": [
        {"version": "8.0.42-azure", "version_comment": "Source distribution"},
        {"version": "8.4.5-azure", "version_comment": "Source distribution"},
    ],
    "Google Cloud SQL for MySQL": [
        {"version": "8.0.32-google", "version_comment": "(Google)"},
        {"version": "5.7.44-google-log", "version_comment": "(Google)"},
    ],
    "Vitess or PlanetScale": [{"version": "8.0.30-Vitess"}],
    "Galera Cluster": [
        {"version": "11.8.9-MariaDB-0+deb13u1 from Debian-log", "wsrep_on": "1"},
        {
            "version": "5.7.30-33-57-log",
            "version_comment": "Percona XtraDB Cluster (GPL), Release rel33, Revision 5dd6d59, WSREP version 31.43",
            "wsrep_on": "ON",
        },
    ],
    "MySQL Group Replication": [
        {
            "version": "9.7.4",
            "group_replication_group_name": "6b2d6d2e-0000-4000-8000-000000000001",
        }
    ],
    "Percona Server": [
        {"version": "8.0.36-28", "version_comment": "Percona Server (GPL), Release 28"}
    ],
    "": [
        {"version": "8.4.3", "version_comment": "MySQL Community Server - GPL", "basedir": "/usr/"},
        {"version": "9.7.4", "version_comment": "(Debian)", "group_replication_group_name": ""},
        {
            "version": "11.8.9-MariaDB-0+deb13u1 from Debian",
            "version_comment": "Debian n/a",
            "wsrep_on": "0",
        },
    ],
}
REMEDIES = {
    "Amazon RDS for MySQL": "aws rds modify-db-parameter-group --db-parameter-group-name GROUP --parameters"
    " ParameterName=binlog_format,ParameterValue=ROW,ApplyMethod=pending-reboot",
    "Amazon RDS for MariaDB": "aws rds modify-db-parameter-group",
    "Amazon Aurora MySQL": "aws rds modify-db-cluster-parameter-group --db-cluster-parameter-group-name GROUP",
    "Azure Database for MySQL": "az mysql flexible-server parameter set --resource-group GROUP --server-name SERVER"
    " --name binlog_format --value ROW",
    "Google Cloud SQL for MySQL": "gcloud sql instances patch INSTANCE --database-flags=binlog_format=ROW",
    "Galera Cluster": "SET PERSIST binlog_format = ROW",
    "MySQL Group Replication": "SET PERSIST binlog_format = ROW",
    "Percona Server": "SET PERSIST binlog_format = ROW",
}


@pytest.mark.parametrize(
    ("name", "variables"),
    [(name, each) for name, recorded in RECORDED.items() for each in recorded],
)
def test_recorded_variables_name_the_service(name: str, variables: dict[str, str]) -> None:
    assert service_of(variables).name == name


def test_a_server_without_any_sign_is_the_owners() -> None:
    assert service_of({}) == OWN


def test_each_service_was_recorded_and_its_page_exists() -> None:
    assert set(RECORDED) == {*BY_NAME, ""}
    for service in SERVICES:
        assert service.name in (DOCS / service.page).read_text()


@pytest.mark.parametrize("name", REMEDIES)
def test_a_mixed_log_is_refused_in_the_words_of_the_service(name: str) -> None:
    facts = replace(WHOLE, binlog_format="MIXED", service=BY_NAME[name])
    (error,) = findings(facts, GRANTS)
    assert error.what == "binlog_format=MIXED: statements instead of rows"
    assert error.remedy.startswith(REMEDIES[name])


def test_the_remedies_of_a_managed_service_contain_no_set_global() -> None:
    """Its owner has no privilege for it."""
    for service in filter(lambda each: each.change, SERVICES):
        facts = replace(
            WHOLE,
            service=service,
            log_bin=False,
            row_image="MINIMAL",
            row_metadata="MINIMAL",
            binlog_format="MIXED",
        )
        errors = findings(facts, GRANTS)
        assert len(errors) == 4
        for text in (service.retention, *(error.remedy for error in errors)):
            assert text and not re.search(
                r"SET (GLOBAL|PERSIST)|--log-bin\b|option file|[{}]", text
            )
