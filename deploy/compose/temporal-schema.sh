#!/bin/sh
# Makes Temporal's two databases and brings their schema up to the version of
# this image. Safe to run again: what is there is left as it is.
set -eu
: "${SQL_PASSWORD:?set SQL_PASSWORD}"

prepare() {
	temporal-sql-tool --database "$1" create-database
	temporal-sql-tool --database "$1" setup-schema --version 0.0
	temporal-sql-tool --database "$1" update-schema --schema-name "$2"
}

prepare temporal postgresql/v12/temporal
prepare temporal_visibility postgresql/v12/visibility
