#!/bin/sh
# script.sh FILE: prints a package's script with the part that both packages share, since a package takes one file.
set -eu
sed "/# script.sh puts other-daemon.sh here\.\$/{
	r $(dirname "$0")/other-daemon.sh
	d
}" "$1"
