"""How tests start Java: for a minute, so that compiling hot code well costs more than it gains."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
