#!/bin/sh
# Prints the version of this source, as dpkg and rpm sort versions: that of its tag (v0.2.0), or how far it is
# behind the last tag (0.2.0+14.g0c209cd). Before the first tag it comes before the release to come
# (0.1.0~1234.g0c209cd). Without git it is the newest release of the changelog.
set -eu
cd "$(dirname "$0")"
newest=$(sed -n 's/^- semver: //p' changelog.yml | head -n 1)
if ! git ls-files --error-unmatch version.sh >/dev/null 2>&1; then
	echo "$newest"
	exit
fi
described=$(git describe --tags --match 'v[0-9]*' --dirty=.modified 2>/dev/null || true)
if [ -z "$described" ]; then
	modified=
	git diff --quiet HEAD || modified=.modified
	echo "$newest~$(git rev-list --count HEAD).g$(git rev-parse --short=7 HEAD)$modified"
	exit
fi
# v0.2.0-rc1-14-g0c209cd is 0.2.0~rc1+14.g0c209cd.
echo "$described" | sed 's/^v//; s/-\([0-9][0-9]*\)-g\([0-9a-f][0-9a-f]*\)/+\1.g\2/; s/-/~/g'
