"""Options with which tests start Java: for a minute of work, thorough compilation costs more than it gains."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
# Generated code of a query handles only a few rows.
QUICK_SPARK = ("spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN")
