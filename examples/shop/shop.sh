#!/bin/sh
# A very small shop.
case "$1" in
version) echo "shop @TAG@" ;;
order) echo "one $2, coming up" ;;
*)
	echo "usage: shop version | order THING" >&2
	exit 2
	;;
esac
