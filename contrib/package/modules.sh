#!/bin/sh
# Prints the licenses of Go and of the modules that the program is linked with, as they ask of whoever passes it on.
set -eu
go=${GO:-go}
echo "== Go"
cat "$("$go" env GOROOT)/LICENSE"
"$go" list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/netnice | LC_ALL=C sort -u |
	while read -r path version dir; do
		[ -n "$path" ] || continue
		printf '\n== %s %s\n' "$path" "$version"
		find "$dir" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) | LC_ALL=C sort |
			while read -r file; do cat "$file"; done
	done
