#!/bin/sh
# Starts Redis for Belay: every write is appended to disk once a second, and
# nothing is ever evicted, since what would go are claims and locks. The
# password comes by standard input and so stands in no list of processes.
set -eu
: "${REDIS_PASSWORD:?set REDIS_PASSWORD}"
case $REDIS_PASSWORD in
*[!A-Za-z0-9._~-]*)
	echo 'redis: REDIS_PASSWORD is part of a URL: use letters, digits, dots, dashes, underscores and tildes' >&2
	exit 2
	;;
esac
exec redis-server --dir "${REDIS_DIR:-/data}" --port "${REDIS_PORT:-6379}" \
	--appendonly yes --appendfsync everysec --maxmemory-policy noeviction - <<END
requirepass $REDIS_PASSWORD
END
