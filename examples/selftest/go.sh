# Where Go keeps things in the steps of selftest.yaml. Steps have a home of their
# own, so that what is built stays in the cache directory of the host.
export GOCACHE="$BELAY_CACHE/go-build" GOMODCACHE="$BELAY_CACHE/go-mod"

# Modules that whoever runs this has already, and how theirs are fetched, spare
# a download: ~NAME is the home in the list of users, whatever HOME says.
home=$(eval echo "~$(id -un)")
if [ -f "$home/.config/go/env" ]; then
	export GOENV="$home/.config/go/env"
fi
if [ -d "$home/go/pkg/mod/cache/download" ]; then
	GOPROXY="file://$home/go/pkg/mod/cache/download,$(go env GOPROXY)"
	export GOPROXY
fi
