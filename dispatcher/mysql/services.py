"""Recognises the service or cluster that runs a server, and describes how its settings are changed.

A managed server refuses SET GLOBAL: its settings belong to a parameter group or to flags, and some services purge
binlogs by rules of their own. `SERVICES` is a table with one row for each service: the variables by which the service
is recognised, and its remedies. The page under docs/servers/ of each service names the vendor's documentation from
which its row comes. The recognition needs no separate query: `server_facts` reads these variables together with its
own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Service:
    """`name`: as its vendor writes it; `page`: its page of the documentation. `signs`: variables with regular
    expressions; the service is recognised if one of them is found in its variable's value.

    Remedies, each "" if the owner of the server makes this change by SQL: `change`: how to set `{variable}` to
    `{value}`; `log_bin`: how to turn the binlog on; `retention`: how to keep binlogs for a week. `retention_table`: the
    table (`name`, `value`) with the hours for which this service keeps binlogs, if the server's variables do not show
    it. `others_write`: True if the binlog contains the writes of other nodes only when log_slave_updates is on.
    `refusal`: why the daemon cannot read this service, "" if it can.
    """

    name: str
    page: str
    signs: tuple[tuple[str, str], ...] = ()
    change: str = ""
    log_bin: str = ""
    retention: str = ""
    retention_table: str = ""
    others_write: bool = False
    refusal: str = ""

    def is_recognised(self, variables: Mapping[str, str]) -> bool:
        return any(
            re.search(sign, variables[name], re.IGNORECASE)
            for name, sign in self.signs
            if name in variables
        )


OWN = Service("", "")
"""A server that its owner runs, and that belongs to no cluster."""

_RDS_GROUP = (
    "aws rds modify-db-parameter-group --db-parameter-group-name GROUP --parameters"
    " ParameterName={variable},ParameterValue={value},ApplyMethod=pending-reboot, then reboot the instance (a default"
    " group cannot be changed: create a group, and assign it to the instance)"
)
_RDS_LOG_BIN = (
    "turn automated backups on, which turns the binlog on: aws rds modify-db-instance --db-instance-identifier INSTANCE"
    " --backup-retention-period 7 --apply-immediately"
)
_RDS_HOURS = "CALL mysql.rds_set_configuration('binlog retention hours', 168)"
_RDS_TABLE = "mysql.rds_configuration"
_AURORA_GROUP = (
    "aws rds modify-db-cluster-parameter-group --db-cluster-parameter-group-name GROUP --parameters"
    " ParameterName={variable},ParameterValue={value},ApplyMethod=pending-reboot, then reboot the writer instance (a"
    " default group cannot be changed: create a DB cluster parameter group, and assign it to the cluster)"
)
_AZURE_PARAMETER = (
    "az mysql flexible-server parameter set --resource-group GROUP --server-name SERVER --name {variable} --value"
    " {value}"
)
_CLOUD_SQL_FLAGS = (
    "gcloud sql instances patch INSTANCE --database-flags={variable}={value} (it replaces all flags: also name those"
    " that are set already)"
)

# The first row that fits is taken: a server of Aurora also has the signs of RDS, and a node of Percona XtraDB Cluster
# those of Percona Server.
SERVICES = (
    Service(
        "Vitess or PlanetScale",
        "README.md",
        signs=(("version", "vitess|planetscale"), ("version_comment", "vitess|planetscale")),
        refusal="it has no binlog that clients can read: VTGate offers a change stream of its own (VStream), by gRPC",
    ),
    Service(
        "Amazon Aurora MySQL",
        "amazon.md",
        signs=(("aurora_version", "."), ("basedir", "(^|/)rdsdbbin/oscar")),
        change=_AURORA_GROUP,
        log_bin="read the writer, by the cluster's endpoint, because readers have no binlog; and "
        + _AURORA_GROUP.format(variable="binlog_format", value="ROW"),
        retention=_RDS_HOURS,
        retention_table=_RDS_TABLE,
    ),
    Service(
        "Amazon RDS for MariaDB",
        "amazon.md",
        signs=(("version_comment", "aws.amazon.com/rds"), ("basedir", "(^|/)rdsdbbin/mariadb")),
        change=_RDS_GROUP,
        log_bin=_RDS_LOG_BIN,
        retention=_RDS_HOURS,
        retention_table=_RDS_TABLE,
    ),
    Service(
        "Amazon RDS for MySQL",
        "amazon.md",
        signs=(("basedir", "(^|/)rdsdbbin/"),),
        change=_RDS_GROUP,
        log_bin=_RDS_LOG_BIN,
        retention=_RDS_HOURS,
        retention_table=_RDS_TABLE,
    ),
    Service(
        "Azure Database for MySQL",
        "README.md",
        signs=(("version", "-azure"),),
        change=_AZURE_PARAMETER,
        log_bin="read a Flexible Server, which always has a binlog",
        retention=_AZURE_PARAMETER.format(variable="binlog_expire_logs_seconds", value="604800"),
    ),
    Service(
        "Google Cloud SQL for MySQL",
        "README.md",
        signs=(("version", "-google"), ("version_comment", r"\(google\)")),
        change=_CLOUD_SQL_FLAGS,
        log_bin=(
            "gcloud sql instances patch INSTANCE --enable-bin-log (a primary also needs automated backups:"
            " --backup-start-time=HH:MM)"
        ),
        retention=_CLOUD_SQL_FLAGS.format(variable="binlog_expire_logs_seconds", value="604800")
        + "; the flag is expire_logs_days=7 in MySQL 5.7",
    ),
    Service("Galera Cluster", "clusters.md", signs=(("wsrep_on", "^(on|1)$"),), others_write=True),
    Service(
        "MySQL Group Replication",
        "clusters.md",
        signs=(("group_replication_group_name", "."),),
        others_write=True,
    ),
    Service("Percona Server", "README.md", signs=(("version_comment", "percona"),)),
)
VARIABLES = tuple(dict.fromkeys(name for each in SERVICES for name, _ in each.signs))
"""The variables by which services are recognised."""


def service_of(variables: Mapping[str, str]) -> Service:
    """Return the service that runs a server with these variables. `variables` does not contain variables that the
    server lacks."""
    return next((each for each in SERVICES if each.is_recognised(variables)), OWN)
