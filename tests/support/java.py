"""How tests start Java: for a minute, so that compiling hot code well costs more than it gains."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
# What is compiled for a query is run on a handful of rows.
QUICK_SPARK = ("spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN")
