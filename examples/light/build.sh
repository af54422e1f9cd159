# Builds the shop. Steps have a home of their own: where whoever runs this keeps
# what Go has built before, it is there already, and else it is built anew.
home=$(eval echo "~$(id -un)")
GOCACHE="$BELAY_CACHE/go-build"
if [ -d "$home/.cache/go-build" ]; then
	GOCACHE="$home/.cache/go-build"
fi
export GOCACHE GOTOOLCHAIN=local GOWORK=off
go build -o shop shop.go
