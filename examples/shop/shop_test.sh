#!/bin/sh
# Tests the shop: shop_test.sh PROGRAM
set -eu
shop=$1

expect() {
	want=$1
	shift
	got=$("$shop" "$@" 2>&1) || true
	if [ "$got" != "$want" ]; then
		echo "shop $*: got \"$got\", want \"$want\"" >&2
		exit 1
	fi
	echo "ok   shop $*"
}

expect "one tea, coming up" order tea
expect "usage: shop version | order THING" sell
