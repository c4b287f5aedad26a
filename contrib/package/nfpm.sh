#!/bin/sh
# nfpm.sh NFPM VERSION ARCH FOLDER: makes the packages of what has been built. SOURCE_DATE_EPOCH is the time of the
# source, in seconds since 1970.
set -eu
nfpm=$1 folder=$4
export VERSION="$2" ARCH="$3"
cd "$(dirname "$0")/../.."
contrib/package/script.sh contrib/package/deb/postinst >"$folder/postinst"
contrib/package/script.sh contrib/package/rpm/post.sh >"$folder/post.sh"
for packager in deb rpm; do
	# A package that Debian makes of the same release has revision 1, and is newer.
	case $packager in deb) RELEASE=0netnice1 ;; *) RELEASE=1 ;; esac
	export RELEASE
	contrib/package/changelog.sh "$VERSION" "$RELEASE" "$SOURCE_DATE_EPOCH" >"$folder/changelog.yml"
	case $packager in
	deb) grep -v '^license:' contrib/package/nfpm.yaml ;;
	*) cat contrib/package/nfpm.yaml ;;
	esac | "$nfpm" package -f - -p $packager -t "$folder/"
done
