#!/bin/sh
# changelog.sh VERSION RELEASE SECONDS: prints changelog.yml for a package of that version, whose source is of that
# time since 1970. Its first entry is the package's: a snapshot between releases has one of its own.
set -eu
version=$1 release=$2
date=$(date -u -d "@$3" +%Y-%m-%dT%H:%M:%SZ)
file=$(dirname "$0")/changelog.yml
newest=$(sed -n 's/^- semver: //p' "$file" | head -n 1)
case $version in
"$newest")
	cat "$file"
	;;
"$newest~"*) # before the newest release, of which it has the changes
	awk -v version="$version" -v date="$date" '
		/^- semver: / && !versions++ { $0 = "- semver: " version }
		/^  date: / && !dates++ { $0 = "  date: " date }
		{ print }' "$file"
	;;
*)
	cat <<END
- semver: $version
  date: $date
$(sed -n '/^  packager: /p; /^  deb: /{p;q;}' "$file")
  changes:
    - note: Snapshot of the source after release $newest.
END
	cat "$file"
	;;
esac | sed "s/^\(- semver: .*\)/\1-$release/"
