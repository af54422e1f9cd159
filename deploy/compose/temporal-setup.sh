#!/bin/sh
# Makes the namespace and the search attributes that Belay sets on every run and
# stage. Safe to run again: what is there is left as it is.
set -eu
: "${TEMPORAL_ADDRESS:?set TEMPORAL_ADDRESS}" "${TEMPORAL_NAMESPACE:?set TEMPORAL_NAMESPACE}"

# retry runs a command until it succeeds, for two minutes.
retry() {
	tries=0
	until "$@"; do
		tries=$((tries + 1))
		if [ "$tries" -ge 40 ]; then
			echo "giving up: $*" >&2
			return 1
		fi
		sleep 3
	done
}

namespace() {
	temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1 ||
		temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "${RETENTION:-30d}"
}

attributes() {
	temporal operator search-attribute create --namespace "$TEMPORAL_NAMESPACE" \
		--name BelayTenant --type Keyword \
		--name BelayProject --type Keyword \
		--name BelayPipeline --type Keyword \
		--name BelayStatus --type Keyword \
		--name BelayDedupKey --type Keyword
}

retry temporal operator cluster health
retry namespace
# A namespace that was just made is not known to all of the server at once.
retry attributes
